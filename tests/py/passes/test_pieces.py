"""Pointwise ops on joined tensors are computed by pieces: the same bits, and nothing is joined that only they read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from beside_torch import assert_trains, compiled
from costs import Some
from programs import run_pipeline
from torch import Tensor, nn
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import Block, Region, SSAValue

from aicf_mlir.dialects import nn as ops
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.interpreters import run_function

BATCH, HEADS, LENGTH, SIZE = 2, 2, 6, 16
PLACES = torch.arange(LENGTH, dtype=torch.float64)[:, None] * torch.linspace(1, 0.1, SIZE // 2).double()
COS, SIN = torch.cat([PLACES, PLACES], -1).cos(), torch.cat([PLACES, PLACES], -1).sin()


def rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotary(x: Tensor) -> Tensor:
    """As the models of transformers have it."""
    return x * COS + rotate_half(x) * SIN


def partly(x: Tensor) -> Tensor:
    """As GPT-NeoX has it: the first elements alone."""
    turned, rest = x[..., :8], x[..., 8:]
    turned = turned * COS[:, :8] + rotate_half(turned) * SIN[:, :8]
    return torch.cat((turned, rest), dim=-1)


def halves(x: Tensor) -> Tensor:
    """Written out, and joined in front of a function."""
    a, b = x.chunk(2, -1)
    c, s = COS[:, : SIZE // 2], SIN[:, : SIZE // 2]
    return torch.cat((a * c - b * s, b * c + a * s), -1).tanh()


def in_f32(x: Tensor) -> Tensor:
    return (x.float() * COS.float() + rotate_half(x.float()) * SIN.float()).to(x.dtype)


def rolled(x: Tensor) -> Tensor:
    """Along a dimension in the middle, with a factor for each row."""
    return torch.cat((x[:, :, 2:], x[:, :, :2]), 2) * COS[:, :1] + x


WRITTEN: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "rotary": (rotary, 1),
    "of some elements": (partly, 1),
    "of halves": (halves, 1),
    "in f32": (in_f32, 1),
    "rolled": (rolled, 1),
    "of pairs": (lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * SIN + x * COS, 1),
    "what another reads": (lambda x: (lambda turned: turned * SIN + turned.cumsum(2))(rotate_half(x)), 1),
}
"""By name: the function, and how often a step joins tensors."""


class Model(nn.Module):
    """A function of two projections, as of queries and keys."""

    def __init__(self, written: Callable[[Tensor], Tensor]):
        super().__init__()
        self.written = written
        self.query, self.key = nn.Linear(4, HEADS * SIZE), nn.Linear(4, HEADS * SIZE)

    def forward(self, batch: Any) -> Tensor:
        x = batch["x"]
        query, key = (
            self.written(f(x).view(BATCH, LENGTH, HEADS, SIZE).transpose(1, 2))
            for f in (self.query, self.key)
        )
        return query @ key.mT


def loss(model: Any, batch: Any) -> Tensor:
    y = model(batch)
    return (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape)).square().mean()


@pytest.mark.parametrize("name", WRITTEN)
def test_trains_as_torch(name: str) -> None:
    written, joined = WRITTEN[name]
    torch.manual_seed(1)
    model = Model(written).double()
    batch = {"x": torch.randn(BATCH, LENGTH, 4, dtype=torch.float64)}
    assert len(re.findall(r"nn\.concat", compiled(model, loss, batch).ir("nn"))) == 2 * joined
    assert_trains(model, loss, batch, 1e-6 if name == "in f32" else 1e-12)


ONE = ("neg", "exp", "tanh", "abs")
TWO = ("add", "mul", "sub", "maximum")


def random_module(rng: np.random.Generator) -> ModuleOp:
    """Pointwise ops, splits and joins of tensors [3, 8, 4], at random."""
    shape = (3, 8, 4)
    block = Block(arg_types=[TensorType(f32, shape), TensorType(f32, shape), TensorType(f32, (8, 1))])
    values: list[SSAValue] = [*block.args[:2]]

    def put(op: Any) -> Any:
        block.add_op(op)
        return op

    for _ in range(int(rng.integers(4, 16))):
        x, y = (values[int(i)] for i in rng.integers(max(0, len(values) - 4), len(values), 2))
        kind = int(rng.integers(4))
        if kind == 0:
            values.append(put(CLASSES[str(rng.choice(ONE))](x)).result)
        elif kind == 1:
            y = block.args[2] if rng.integers(4) == 0 else y
            values.append(put(CLASSES[str(rng.choice(TWO))](x, y)).result)
        else:
            dim = int(rng.integers(3))
            cut = int(rng.integers(1, shape[dim]))
            a, b = put(ops.SplitOp(x, dim, (cut, shape[dim] - cut))).parts
            if rng.integers(2):
                a = put(CLASSES["neg"](a)).result
            values.append(put(ops.ConcatOp([b, a], dim)).result)
    results = [values[-1], values[int(rng.integers(len(values)))]]
    block.add_op(func.ReturnOp(*results))
    types = [each.type for each in results]
    return ModuleOp([func.FuncOp("f", ([*block.arg_types], types), Region(block))])


def test_random_programs_keep_their_bits(some: Some) -> None:
    by_pieces = 0
    for seed in some(range(200)):
        rng = np.random.default_rng(seed)
        module = random_module(rng)
        module.verify()
        given = [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 8, 4), (3, 8, 4), (8, 1))]
        rewritten = run_pipeline(module, "canonicalize,cse,dce")
        by_pieces += count(ops.SplitOp, rewritten) > count(ops.SplitOp, module)
        for got, wanted in zip(run_function(rewritten, given), run_function(module, given), strict=True):
            np.testing.assert_array_equal(got, wanted, f"seed {seed}")
    assert by_pieces


def count(op: type[Any], module: ModuleOp) -> int:
    return sum(isinstance(each, op) for each in module.walk())

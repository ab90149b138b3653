"""Keys and values that a model repeats for groups of heads are each read once, and the results and gradients stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from beside_torch import STEPS, assert_near, assert_trains, compiled
from costs import Some
from programs import run_pipeline
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, f64
from xdsl.ir import Block, Region, SSAValue

from aicf_mlir import trace
from aicf_mlir.dialects import nn as ops
from aicf_mlir.dialects.nn.attention import AttentionBase
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.repeated_heads import ShareHeads
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.arithmetic import EXACT
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes import keep_scores

BATCH, GROUPS, REPEATS, LENGTH, SIZE = 2, 2, 3, 5, 4
HEADS = GROUPS * REPEATS

sdpa: Any = scaled_dot_product_attention


def repeat_kv(x: Any, repeats: int = REPEATS) -> Any:
    """As the models of transformers have it."""
    b, g, s, d = x.shape
    return x[:, :, None].expand(b, g, repeats, s, d).reshape(b, g * repeats, s, d)


def before_transpose(x: Any) -> Any:
    """As the first Llama has it: heads are repeated in [B, S, G, D]."""
    b, g, s, d = x.shape
    rows = x.transpose(1, 2)[:, :, :, None]
    return rows.expand(b, s, g, REPEATS, d).reshape(b, s, g * REPEATS, d).transpose(1, 2)


def one_head(x: Any) -> Any:
    """The first head for all queries."""
    return x[:, :1].expand(-1, HEADS, -1, -1)


def different(x: Any) -> Any:
    """Heads of which no two are equal."""
    return torch.cat([x, -x, 2 * x], 1)


READ: dict[str, tuple[Callable[[Any], Any], int]] = {
    "repeat_kv": (repeat_kv, GROUPS),
    "repeat_interleave": (lambda x: x.repeat_interleave(REPEATS, 1), GROUPS),
    "repeat": (lambda x: x.repeat(1, 1, REPEATS, 1).view(len(x), HEADS, LENGTH, SIZE), GROUPS),
    "before a transpose": (before_transpose, GROUPS),
    "one head": (one_head, 1),
    "one head of one sequence": (lambda x: x[:1, :1].expand(BATCH, HEADS, -1, -1), 1),
    "twice": (lambda x: repeat_kv(repeat_kv(x[:, :1], 2)), 1),
    "in f32": (lambda x: repeat_kv(x.float()).double(), GROUPS),
    "one dimension with rows, turned and rounded": (
        lambda x: repeat_kv(x).flatten(1, 2).mT.bfloat16().mT.double().unflatten(1, (HEADS, LENGTH)),
        GROUPS,
    ),
    "for all sequences": (lambda x: repeat_kv(x[:1]).expand(BATCH, -1, -1, -1), GROUPS),
    "no neighbours": (lambda x: x.repeat(1, REPEATS, 1, 1), HEADS),
    "elements in another order": (
        lambda x: x[:, :, :, None].expand(-1, -1, -1, REPEATS, -1).reshape(BATCH, HEADS, LENGTH, SIZE),
        HEADS,
    ),
    "runs of 8": (lambda x: x.flatten()[:8].expand(30, 8).reshape(BATCH, HEADS, LENGTH, SIZE), HEADS),
    "equal sequences": (lambda x: different(x[:1]).expand(BATCH, -1, -1, -1), HEADS),
    "equal rows": (lambda x: different(x)[:, :, :1].expand(-1, -1, LENGTH, -1), HEADS),
    "equal elements": (lambda x: different(x)[..., :1].expand(-1, -1, -1, SIZE), HEADS),
    "dropout of each": (lambda x: torch.dropout(repeat_kv(x), 0.5, True), HEADS),
}
"""By name: how heads are repeated, and the number that attention reads."""


class Model(nn.Module):
    """Attention to keys and values of `GROUPS` heads, which `attend` repeats; with a bias for each score."""

    def __init__(self, attend: Callable[..., Any]):
        super().__init__()
        self.attend = attend
        self.query, self.pair = nn.Linear(SIZE, HEADS * SIZE), nn.Linear(SIZE, 2 * GROUPS * SIZE)
        self.bias = nn.Parameter(torch.randn(BATCH, HEADS, LENGTH, LENGTH))

    def forward(self, batch: Any) -> Any:
        x = batch["x"]
        query = self.query(x).view(BATCH, LENGTH, HEADS, SIZE).transpose(1, 2)
        key, value = self.pair(x).view(BATCH, LENGTH, 2, GROUPS, SIZE).permute(2, 0, 3, 1, 4)
        return self.attend(query, key, value, self.bias, batch["mask"])


def made(attend: Callable[..., Any]) -> tuple[Model, dict[str, torch.Tensor]]:
    """A model in f64 and its batch, with a mask for each sequence; one row sees nothing."""
    torch.manual_seed(1)
    mask = torch.rand(BATCH, 1, LENGTH, LENGTH) > 0.4
    mask[0, 0, 2] = False
    return Model(attend).double(), {"x": torch.randn(BATCH, LENGTH, SIZE).double(), "mask": mask}


def loss(model: Any, batch: Any) -> torch.Tensor:
    """Weighs each element."""
    y = model(batch)
    return (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape)).square().mean()


def heads_read(module: ModuleOp) -> list[tuple[int, int]]:
    """The heads of keys and of values that each attention reads."""
    found = [op for op in module.walk() if isinstance(op, AttentionBase)]
    return [(shape_of(op.key)[1], shape_of(op.value)[1]) for op in found]


def read_by(attend: Callable[..., Any]) -> list[tuple[int, int]]:
    """The heads that the attention of a model reads."""
    model, batch = made(attend)
    return heads_read(run_pipeline(trace(model, loss, batch).module, "canonicalize"))


@pytest.mark.parametrize("name", READ)
def test_heads_that_attention_reads(name: str) -> None:
    repeat, heads = READ[name]
    assert read_by(lambda q, k, v, *_: sdpa(q, repeat(k), repeat(v), is_causal=True)) == [(heads, heads)]


def test_keys_and_values_have_one_factor() -> None:
    assert read_by(lambda q, k, v, *_: sdpa(q, repeat_kv(k), different(v))) == [(HEADS, HEADS)]
    assert read_by(lambda q, k, v, *_: sdpa(q, one_head(k), repeat_kv(v))) == [(GROUPS, GROUPS)]
    assert read_by(lambda q, k, v, *_: sdpa(q, k, v, enable_gqa=True)) == [(GROUPS, GROUPS)]
    ones = read_by(
        lambda q, k, v, *_: sdpa(q, repeat_kv(k[:, :1], 2), repeat_kv(v[:, :1], 2), enable_gqa=True)
    )
    assert ones == [(1, 1)]


TRAINED: dict[str, Callable[..., Any]] = {
    "groups, causal": lambda q, k, v, *_: sdpa(q, repeat_kv(k), repeat_kv(v), is_causal=True),
    "groups, a mask of each sequence": (
        lambda q, k, v, bias, mask: sdpa(q, before_transpose(k), before_transpose(v), mask)
    ),
    "groups, a learned mask of each head": (
        lambda q, k, v, bias, mask: sdpa(q, repeat_kv(k), repeat_kv(v), bias)
    ),
    "one head, a mask of each sequence": (
        lambda q, k, v, bias, mask: sdpa(q, one_head(k), one_head(v), mask)
    ),
    "one head, a learned mask of each head": (
        lambda q, k, v, bias, mask: sdpa(q, one_head(k), one_head(v), bias)
    ),
    "one head of keys, groups of values": lambda q, k, v, *_: sdpa(q, one_head(k), repeat_kv(v)),
    "repeated keys are read elsewhere": (
        lambda q, k, v, *_: sdpa(q, repeat_kv(k), repeat_kv(v)) + repeat_kv(k).sin()
    ),
    "queries are keys": lambda q, k, v, *_: sdpa(repeat_kv(k), repeat_kv(k), repeat_kv(k)),
}


@pytest.mark.parametrize("kept", [False, True], ids=["one op", "products"])
@pytest.mark.parametrize("name", TRAINED)
def test_trains_as_torch(name: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep_scores, "keeps_scores", lambda op, target: kept)
    model, batch = made(TRAINED[name])
    assert_trains(model, loss, batch, 1e-12)


@pytest.mark.parametrize("repeat", [repeat_kv, before_transpose, one_head])
def test_with_dropout_it_trains_as_without_the_rule(
    repeat: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights are dropped: they belong to heads of queries."""

    def trained() -> tuple[nn.Module, str]:
        model, batch = made(lambda q, k, v, bias, mask: sdpa(q, repeat(k), repeat(v), mask, dropout_p=0.3))
        step = compiled(model, loss, batch)
        for _ in range(STEPS):
            step.train_step(dict(batch))
        return model, step.ir("nn")

    model, text = trained()
    monkeypatch.setattr(ShareHeads, "match_and_rewrite", lambda *_: None)
    expected, wide = trained()
    assert ("broadcast_to" in wide, "broadcast_to" in text) == (True, False)
    for (name, got), wanted in zip(model.named_parameters(), expected.parameters(), strict=True):
        assert_near(got.detach(), wanted.detach(), 1e-12, name)


class Chain:
    """Random casts, broadcasts, transposes and reshapes from a new tensor to heads [B, H, S, D].

    The dimensions of the result are digits, of which three are the number of a head; the tensor has 1 in place of those that
    are repeated. A dimension on the way has one digit or more.
    """

    def __init__(self, rng: np.random.Generator, sizes: list[int], repeated: list[bool], block: Block):
        self.rng, self.sizes, self.block = rng, sizes, block
        self.narrow = {digit for digit, once in enumerate(repeated) if once}
        self.dims = [[int(digit)] for digit in rng.permutation(len(sizes))]
        self.value: SSAValue = block.insert_arg(TensorType(f64, self.shape()), len(block.args))
        steps = [self.cast, self.spread, self.turn, self.cut, self.join]
        for step in rng.integers(len(steps), size=rng.integers(12)):
            steps[step]()
        self.cut(every=True)
        self.spread(every=True)
        self.turn([[each[0] for each in self.dims].index(digit) for digit in range(len(sizes))])
        self.dims = [[0], [1, 2, 3], [4], [5]]
        self.put(ops.ReshapeOp(self.value, self.shape()))
        self.put(ops.CastOp(self.value, f64))

    def shape(self) -> list[int]:
        return [
            math.prod(1 if digit in self.narrow else self.sizes[digit] for digit in dim) for dim in self.dims
        ]

    def put(self, op: ValueOp) -> None:
        self.block.add_op(op)
        self.value = op.result

    def cast(self) -> None:
        self.put(ops.CastOp(self.value, f32 if self.rng.integers(2) else f64))

    def spread(self, every: bool = False) -> None:
        """Repeat dimensions of which all digits are to be repeated."""
        for dim in self.dims:
            if self.narrow.issuperset(dim) and (every or self.rng.integers(2)):
                self.narrow.difference_update(dim)
        self.put(ops.BroadcastToOp(self.value, self.shape()))

    def turn(self, order: list[int] | None = None) -> None:
        order = [int(dim) for dim in self.rng.permutation(len(self.dims))] if order is None else order
        self.dims = [self.dims[dim] for dim in order]
        self.put(ops.TransposeOp(self.value, order))

    def cut(self, every: bool = False) -> None:
        """Each digit of a dimension as a dimension."""
        self.dims = [
            part
            for dim in self.dims
            for part in ([[digit] for digit in dim] if every or self.rng.integers(2) else [dim])
        ]
        self.put(ops.ReshapeOp(self.value, self.shape()))

    def join(self) -> None:
        """Two neighbours as one dimension."""
        if len(self.dims) > 1:
            at = int(self.rng.integers(len(self.dims) - 1))
            self.dims[at : at + 2] = [[*self.dims[at], *self.dims[at + 1]]]
            self.put(ops.ReshapeOp(self.value, self.shape()))


def test_random_chains(some: Some) -> None:
    """The largest number of neighbours that are equal by the chains is found, and results stay."""
    fewer = 0
    for seed in some(range(100)):
        rng = np.random.default_rng(seed)
        sizes = [int(size) for size in rng.choice([1, 2, 3, 4], 6)]
        repeated = [[bool(each) for each in rng.random(6) < 0.6] for _ in range(2)]
        batch, heads, size = sizes[0], math.prod(sizes[1:4]), sizes[5]
        block = Block(arg_types=[TensorType(f64, [batch, 2 * heads, 3, size])])
        key = Chain(rng, sizes, repeated[0], block).value
        if seed % 2:  # one tensor: its whole repetition is found
            value, repeated[1] = key, repeated[0]
        else:
            value = Chain(rng, sizes, repeated[1], block).value
        attention = ops.AttentionOp(block.args[0], key, value, scale=0.5)
        block.add_ops([attention, func.ReturnOp(attention.out)])
        module = ModuleOp([func.FuncOp("f", (block.arg_types, [attention.out.type]), Region(block))])
        rewritten = run_pipeline(module, "canonicalize")
        given = [rng.standard_normal(shape_of(argument)) for argument in block.args]
        (expected,), (found,) = (run_function(each, given, EXACT) for each in (module, rewritten))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13, err_msg=str(seed))
        once = heads
        for number in (3, 2, 1):
            if sizes[number] > 1 and not (repeated[0][number] and repeated[1][number]):
                break
            once //= sizes[number]
        assert heads_read(rewritten) == [(once, once)], seed
        fewer += once < heads
    assert fewer

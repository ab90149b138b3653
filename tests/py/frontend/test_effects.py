"""What an op writes to is an effect, whoever reads its result: buffers after a step are torch's, in every kind of step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from in_place_steps import KINDS, Body, Writer, assert_as_torch, batch_of, compiled
from torch.nn import functional as F

from aicf_mlir import TraceError, trace
from aicf_mlir.frontend import effects
from aicf_mlir.frontend.effects import Writes

Tensor = torch.Tensor
INDEX = torch.tensor([1, 2])


def fresh_statistics(m: Any, x: Tensor, h: Tensor) -> Tensor:
    mean, variance = torch.zeros(3, dtype=x.dtype), torch.ones(3, dtype=x.dtype)
    F.batch_norm(h, mean, variance, training=True)
    return h * variance + mean


def under_no_grad(m: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.no_grad():
        F.batch_norm(h, m.mean, m.variance, training=True, momentum=0.5)
    return h


EFFECTS: dict[str, Body] = {
    "batch_norm": lambda m, x, h: (F.batch_norm(h, m.mean, m.variance, training=True), h)[1],
    "batch_norm of the input": lambda m, x, h: (F.batch_norm(x, m.mean, m.variance, training=True), h)[1],
    "batch_norm twice": lambda m, x, h: (
        F.batch_norm(x, m.mean, m.variance, training=True),
        F.batch_norm(h, m.mean, m.variance, training=True),
        h,
    )[2],
    "batch_norm whose statistics are read": lambda m, x, h: (
        F.batch_norm(h, m.mean, m.variance, training=True),
        h * m.variance + m.mean,
    )[1],
    "batch_norm under no_grad": under_no_grad,
    "batch_norm in evaluation": lambda m, x, h: (F.batch_norm(h, m.mean, m.variance), h)[1],
    "batch_norm of fresh statistics": fresh_statistics,
    "torch.batch_norm": lambda m, x, h: (
        torch.batch_norm(h, None, None, m.mean, m.variance, True, 0.1, 1e-5, False),
        h,
    )[1],
    "torch.native_batch_norm": lambda m, x, h: (
        torch.native_batch_norm(h, None, None, m.mean, m.variance, True, 0.1, 1e-5),
        h,
    )[1],
    "instance_norm": lambda m, x, h: (
        F.instance_norm(h.reshape(2, 3, 2), m.mean, m.variance, use_input_stats=True),
        h,
    )[1],
    "instance_norm whose statistics are read": lambda m, x, h: (
        F.instance_norm(h.reshape(2, 3, 2), m.mean, m.variance, use_input_stats=True),
        h * m.variance + m.mean,
    )[1],
    "a counter": lambda m, x, h: (m.count.add_(1), F.dropout(h, 0.0), h)[2],
    "index_copy_": lambda m, x, h: (m.kept.index_copy_(0, INDEX, h.detach()[:2]), h)[1],
    "a view of a buffer": lambda m, x, h: (m.kept.t()[0].copy_(x[:, 0]), h)[1],
    "out=": lambda m, x, h: (torch.mul(x, 2, out=m.kept), h)[1],
    "a buffer that is written twice": lambda m, x, h: (m.kept.copy_(x), m.kept.mul_(2), h)[2],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EFFECTS)
def test_a_buffer_is_updated(name: str, kind: str) -> None:
    assert_as_torch(EFFECTS[name], kind)


def foreach(m: Any, x: Tensor, h: Tensor) -> Tensor:
    add: Any = vars(torch)["_foreach_add_"]
    add([m.kept, m.mean], 1.0)
    return h


def test_what_has_no_form_is_refused_and_not_dropped() -> None:
    with pytest.raises(TraceError, match=r"aten\._foreach_add.* is not supported"):
        compiled(Writer(foreach), batch_of(torch.float64), "train step")


def test_a_lost_write_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if torch kept such an op whole and dropped it."""
    monkeypatch.setattr("aicf_mlir.frontend.unsupported.with_effects", lambda program: {})
    model, batch = Writer(EFFECTS["instance_norm"]), batch_of(torch.float64)
    with pytest.raises(TraceError, match=r"does not write to 'mean', 'variance', and torch's own step does"):
        trace(model, lambda m, b: m(b["x"]).sum(), batch)


def test_effects_are_read_from_the_schemas() -> None:
    op = torch.ops.aten.add_.Tensor
    x, y = torch.zeros(2), torch.ones(2)
    assert list(effects.written_operands(op, (x, y), {})) == [x]
    seen = set[object]()
    with Writes(lambda tensor: seen.add(effects.memory_of(tensor))):
        torch.nn.functional.instance_norm(
            torch.randn(2, 3, 4), x.new_zeros(3), x.new_ones(3), use_input_stats=True
        )
        x.view(1, 2).mul_(2)
    assert seen >= {effects.memory_of(x)} and effects.memory_of(y) not in seen

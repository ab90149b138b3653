"""Attention as one op: where it is taken, what it trains, and that no plan for a GPU keeps its scores."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_torch import assert_trains, compiled
from torch import nn

from aicf_mlir import _C, compile_train_step
from aicf_mlir.errors import SelectionError
from aicf_mlir.frontend import node_importer
from aicf_mlir.frontend.call import Call
from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.registry import Use, select_kernel
from aicf_mlir.op_call import OpKind, op_call
from aicf_mlir.passes import keep_scores
from aicf_mlir.stages import make_context, run_stages
from aicf_mlir.text.parsing import parse_module

BATCH, HEADS, LENGTH, SIZE = 2, 2, 40, 8

sdpa: Any = F.scaled_dot_product_attention


@pytest.fixture
def wherever_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the CPU would rather keep the scores."""
    monkeypatch.setattr(keep_scores, "keeps_scores", lambda op, target: False)


class SelfAttention(nn.Module):
    """Heads that are views of one projection [batch, length, 3, heads, size]."""

    def __init__(self, attend: Callable[..., Any], size: int = SIZE, heads: int = HEADS):
        super().__init__()
        self.attend, self.size, self.heads = attend, size, heads
        self.project, self.out = nn.Linear(SIZE, 3 * heads * size), nn.Linear(heads * size, SIZE)
        self.bias = nn.Parameter(torch.randn(heads, 1, 1))

    def forward(self, batch: Any) -> Any:
        x = batch["x"]
        parts = self.project(x).view(*x.shape[:2], 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        y = self.attend(*parts.unbind(), self)
        return x + self.out(y.transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    """`keys` rows of another sequence."""

    def __init__(self, keys: int, causal: bool):
        super().__init__()
        self.keys, self.causal = keys, causal
        self.query, self.pair = nn.Linear(SIZE, HEADS * SIZE), nn.Linear(SIZE, 2 * SIZE)

    def forward(self, batch: Any) -> Any:
        x, other = batch["x"], batch["x"][:, : self.keys].flip(1)
        query = self.query(x).view(BATCH, -1, HEADS, SIZE).transpose(1, 2)
        key, value = self.pair(other)[:, None].chunk(2, -1)
        return sdpa(query, key, value, is_causal=self.causal, enable_gqa=True)


def batch(length: int = LENGTH) -> dict[str, torch.Tensor]:
    """One sequence."""
    return {"x": torch.randn(BATCH, length, SIZE, generator=torch.Generator().manual_seed(3))}


def loss(model: Any, batch: Any) -> torch.Tensor:
    """Weighs each element."""
    y = model(batch)
    return (
        (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype, device=y.device).reshape(y.shape))
        .square()
        .mean()
    )


def causal(query: Any, key: Any, value: Any, model: Any) -> Any:
    """What a decoder calls."""
    return sdpa(query, key, value, is_causal=True)


def slopes(query: Any, key: Any, value: Any, model: Any) -> Any:
    """With a mask that is learned: a slope for each head."""
    distance = torch.arange(query.shape[-2], dtype=query.dtype, device=query.device)
    return sdpa(query, key, value, attn_mask=model.bias * distance)


TAKEN: dict[str, tuple[Callable[..., Any], int, bool]] = {
    "causal": (causal, SIZE, True),
    "the largest size": (causal, 256, True),
    "a larger size": (causal, 257, False),
    "a learned mask": (slopes, SIZE, True),
    "a learned mask, detached": (lambda q, k, v, m: sdpa(q, k, v, attn_mask=m.bias.detach()), SIZE, True),
}
"""By name: the call, the size of a head, whether it is one op."""


@pytest.mark.usefixtures("wherever_it_serves")
@pytest.mark.parametrize("name", TAKEN)
def test_is_one_op_where_that_serves(name: str) -> None:
    attend, size, whole = TAKEN[name]
    text = compiled(SelfAttention(attend, size, 1), loss, batch(8)).ir("step")
    assert (
        len(re.findall(r"nn\.attention\s", text))
        == len(re.findall(r"nn\.attention_grad\s", text))
        == int(whole)
    )
    assert ("softmax" in text) != whole


PAYS: dict[str, tuple[int, bool, bool]] = {
    "short": (100, True, False),
    "causal": (128, True, True),
    "all keys": (512, False, False),
    "very many scores": (1100, False, True),
}
"""By name: length, causal, whether the CPU takes the one op."""


@pytest.mark.parametrize("name", PAYS)
def test_the_cpu_takes_it_where_it_pays(name: str) -> None:
    length, before, whole = PAYS[name]
    model = SelfAttention(lambda q, k, v, m: sdpa(q, k, v, is_causal=before))
    step = compiled(model, loss, batch(length))
    assert "nn.attention" in step.ir("step") and ("kernel.attention" in step.ir("lowered")) == whole


@pytest.mark.usefixtures("wherever_it_serves")
@pytest.mark.parametrize("keys", [1, 7, LENGTH])
@pytest.mark.parametrize("before", [False, True], ids=["all", "causal"])
def test_cross_attention_trains_as_torch(keys: int, before: bool) -> None:
    torch.manual_seed(1)
    assert_trains(CrossAttention(keys, before), loss, batch())


@pytest.mark.usefixtures("wherever_it_serves")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_element_types_train_as_torch(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-2
    assert_trains(SelfAttention(causal).to(dtype), loss, {"x": batch()["x"].to(dtype)}, tolerance)


LEARNED: tuple[tuple[int, ...], ...] = (
    (LENGTH, LENGTH),
    (1, LENGTH),
    (LENGTH, 1),
    (HEADS, 1, LENGTH),
    (HEADS, LENGTH, LENGTH),
    (BATCH, 1, LENGTH, LENGTH),
    (BATCH, HEADS, LENGTH, LENGTH),
    (1, 1, 1, 1),
)
"""The shapes of masks."""


class Learned(nn.Module):
    """Attention with a parameter as its mask, and a head of keys for two of queries."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.mask = nn.Parameter(torch.randn(shape))
        self.query, self.pair = nn.Linear(SIZE, HEADS * SIZE), nn.Linear(SIZE, 2 * SIZE)

    def forward(self, batch: Any) -> Any:
        x = batch["x"]
        query = self.query(x).view(BATCH, -1, HEADS, SIZE).transpose(1, 2)
        key, value = self.pair(x)[:, None].chunk(2, -1)
        return sdpa(query, key, value, attn_mask=self.mask.to(x.dtype), enable_gqa=True)


@pytest.mark.parametrize("shape", LEARNED, ids=str)
@pytest.mark.parametrize("kept", [False, True], ids=["computed once more", "kept"])
def test_learned_masks_train_as_torch(
    shape: tuple[int, ...], kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In f64, by the op and by products and a softmax."""
    monkeypatch.setattr(keep_scores, "keeps_scores", lambda op, target: kept)
    torch.manual_seed(1)
    model = Learned(shape).double()
    data = {"x": batch()["x"].double()}
    assert ("kernel.attention_mask_grad" in compiled(model, loss, data).ir("lowered")) != kept
    assert_trains(model, loss, data, 1e-12)


@pytest.mark.usefixtures("wherever_it_serves")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kept", [False, True], ids=["computed once more", "kept"])
def test_learned_masks_of_16_bits_train_as_torch(
    kept: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask is f32 in the model, and rounded for the op, as under autocast."""
    monkeypatch.setattr(keep_scores, "keeps_scores", lambda op, target: kept)
    torch.manual_seed(1)
    model = Learned((HEADS, LENGTH, LENGTH)).to(dtype)
    model.mask.data = model.mask.data.float()
    assert_trains(model, loss, {"x": batch()["x"].to(dtype)}, 2e-2)


@pytest.mark.usefixtures("wherever_it_serves")
def test_more_blocks_than_one_train_as_torch() -> None:
    """Several blocks of queries and of keys, and a last one that is not full."""
    torch.manual_seed(1)
    assert_trains(SelfAttention(causal), loss, batch(600))


@pytest.mark.usefixtures("wherever_it_serves")
@pytest.mark.parametrize("lead", [(), (3,), (2, 3, 2)], ids=str)
def test_any_number_of_leading_dimensions(lead: tuple[int, ...]) -> None:
    """A mask that repeats over some of them."""
    torch.manual_seed(1)

    class Lead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(4, 12)

        def forward(self, batch: Any) -> Any:
            query, key, value = self.project(batch["x"]).chunk(3, -1)
            return sdpa(query, key, value, attn_mask=batch["mask"])

    mask = torch.rand(*(1 if n % 2 else size for n, size in enumerate(lead)), 5, 5) > 0.3
    assert_trains(Lead(), loss, {"x": torch.randn(*lead, 5, 4), "mask": mask})


def planned(model: nn.Module, length: int, target: str, dtype: torch.dtype = torch.float32) -> str:
    """The plan of a training step, as text."""
    given = {name: x.to(dtype) for name, x in batch(length).items()}
    module = parse_module(compiled(model.to(dtype), loss, given).ir("step"))
    run_stages(module, make_context(), target=target, first="lowered")
    return str(module)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "cpu"])
def test_no_plan_has_a_slot_for_the_scores(target: str) -> None:
    length = 2048
    kept = torch.float32 if target == "cpu" else torch.bfloat16
    plan = planned(SelfAttention(causal), length, target, kept)
    shapes = re.findall(r"memref<((?:\d+x)+)(?!i8)\w", plan)
    elements = [math.prod(map(int, shape.rstrip("x").split("x"))) for shape in shapes]
    assert len(elements) > 20 and max(elements) < length * length // 16
    (peak,) = re.findall(r"peak (\d+)", plan)
    assert "attention_grad" in plan and int(peak) < 4 * length * length


@pytest.mark.usefixtures("wherever_it_serves")
@pytest.mark.parametrize("target", ["sm_90", "cpu"])
def test_heads_are_read_where_they_lie(target: str) -> None:
    """The views of one projection, and the gradient of their joined results: nothing is copied for them."""
    launches = re.findall(r"plan\.launch (@\w+) \S+ (\w+) ", planned(SelfAttention(causal), 64, target))
    names = [name for _, name in launches]
    assert names.index("attention") < names.index("attention_grad")
    assert "copy" not in names[: names.index("attention_grad")]


HEAD = (1, 2, 8, 16)


@pytest.mark.parametrize(
    ("shape", "strides", "reason"),
    [
        ((1, 2, 8, 257), (4112, 2056, 257, 1), "needs heads of at most 256 elements, got 257"),
        (
            HEAD,
            (256, 128, 1, 8),
            "needs neighbours along the last dimension, query is f16[1, 2, 8, 16] with strides",
        ),
    ],
)
def test_says_what_the_gpu_does_not_take(
    shape: tuple[int, ...], strides: tuple[int, ...], reason: str
) -> None:
    use = Use.of(
        "attention",
        [("f16", shape, strides), ("f16", shape), ("f16", shape)],
        [("f16", shape), ("f32", shape[:3]), ("f32", shape[:3])],
        {"scale": 1.0},
        ((1, 1, 1, 0, 0), (1, 1, 1)),
    )
    with pytest.raises(SelectionError, match=re.escape(reason)):
        select_kernel(use, "sm_90", "attention_f16_tc")
    assert select_kernel(use, "cpu")[0] == "attention_cpu"


NOT_FINITE: dict[str, tuple[str, float, float]] = {
    "NaN in a query": ("query", math.nan, 1.0),
    "NaN in a key": ("key", math.nan, 1.0),
    "NaN in a value": ("value", math.nan, 1.0),
    "a score of infinity": ("query", math.inf, 1.0),
    "scores of -infinity alone": ("query", -math.inf, 1.0),
}


@pytest.mark.parametrize("name", NOT_FINITE)
def test_what_is_not_finite_is_where_torch_has_it(name: str) -> None:
    which, value, sign = NOT_FINITE[name]
    generator = torch.Generator().manual_seed(0)
    heads = {each: torch.rand(1, 1, 6, 1, generator=generator) + 0.5 for each in ("query", "key", "value")}
    heads[which][0, 0, 2] = value * sign
    out, rows = torch.empty(1, 1, 6, 1), {name: torch.empty(1, 1, 6) for name in ("largest", "total")}
    op_call(OpKind.Attention, heads, {"out": out, **rows}, {"scale": 1.0})
    expected = torch.ops.aten._scaled_dot_product_attention_math(*heads.values(), scale=1.0)[0]
    assert torch.equal(out.isnan(), expected.isnan())
    torch.testing.assert_close(out, expected, equal_nan=True)


TRACED: dict[str, tuple[Callable[..., Any], int]] = {
    "short": (causal, 16),
    "long": (causal, 160),
    "all keys": (lambda q, k, v, m: sdpa(q, k, v), 40),
    "a mask": (lambda q, k, v, m: sdpa(q, k, v, attn_mask=m.bias.detach() > 0), 40),
    "a learned mask": (slopes, 40),
}


@pytest.mark.parametrize("name", TRACED)
def test_the_trace_does_not_ask_for_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    attend, length = TRACED[name]
    model = SelfAttention(attend)
    ours = compiled(model, loss, batch(length)).ir("nn")

    def elsewhere(*args: Any, **kwargs: Any) -> Any:
        return replace(Call(*args, **kwargs), device=torch.device("cuda"))

    monkeypatch.setattr(node_importer, "Call", elsewhere)
    assert compiled(model, loss, batch(length)).ir("nn") == ours


def launched(plan: str) -> list[str]:
    """The ops of its launches."""
    return [name for _, name in re.findall(r"plan\.launch (@\w+) \S+ (\w+) ", plan)]


@pytest.mark.gpu
@pytest.mark.parametrize("name", TRACED)
def test_a_trace_of_the_cpu_gives_the_plan_of_the_gpu(name: str) -> None:
    torch.manual_seed(1)
    attend, length = TRACED[name]
    model = SelfAttention(attend)
    moved = copy.deepcopy(model).cuda()
    data = {key: each.cuda() for key, each in batch(length).items()}
    optimizer = torch.optim.SGD(moved.parameters(), lr=0.05)
    there = compile_train_step(moved, optimizer, loss_fn=loss, example=data, device="cuda")
    here = compiled(model, loss, batch(length))
    assert here.ir("nn") == there.ir("nn")
    module = parse_module(here.ir("nn"))
    run_stages(module, make_context(), target=_C.target_of("cuda:0"))
    assert sorted(launched(to_text(module))) == sorted(launched(there.ir("plan")))

"""Train steps of models whose masks have the least number of a type, or 1e9, beside torch's products and softmax.

torch's fused kernel for the CPU keeps a rounded logsumexp, so the reference is `SDPBackend.MATH`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import test_attention
import torch
import torch.nn.functional as F
from test_attention import BATCH, CASES, LENGTH, SIZE, Attention, Layer, Relative, loss
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from aicf_mlir import compile_train_step
from aicf_mlir.frontend import aten_attention
from aicf_mlir.passes import keep_scores

sdpa: Any = F.scaled_dot_product_attention

RATE = 1024.0
"""Of the descent: a parameter of bf16 shows its gradient only where that is the larger."""

FORMS = ("made of others", "made of others later", "one op")


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How attention is written: by the front end, after the trace, or as one op."""
    if request.param == "made of others":
        monkeypatch.setattr(aten_attention, "serves", lambda call: False)
    kept = request.param != "one op"
    monkeypatch.setattr(keep_scores, "keeps_scores", lambda op, target: kept)
    return str(request.param)


SHIFTS = {
    "least": (None, torch.float64, 1e-5),
    "+1e9": (1e9, torch.float32, 1e-4),
    "-1e9": (-1e9, torch.float32, 1e-4),
} | {f"{sign}1e4": (float(f"{sign}1e4"), torch.float32, 5e-3) for sign in "+-"}
"""By name: what is added, the type of the reference, and how far from it: float64 has bits of a score that float32 has not."""


def gradients(model: nn.Module, batch: Any, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Torch's, of a copy in `dtype`."""
    wide = copy.deepcopy(model).to(dtype)
    moved = {name: each.to(dtype) if each.is_floating_point() else each for name, each in batch.items()}
    with sdpa_kernel(SDPBackend.MATH):
        loss(wide, moved).backward()
    return {name: each.grad.double() for name, each in wide.named_parameters() if each.grad is not None}


def assert_gradients(model: nn.Module, batch: Any, dtype: torch.dtype, tolerance: float) -> None:
    """Those that one step of plain gradient descent shows are torch's, relative to the largest of all."""
    wanted = gradients(model, batch, dtype)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    step = compile_train_step(model, optimizer, loss_fn=loss, example=dict(batch), device="cpu")
    step.train_step(dict(batch))
    largest = max(each.abs().max().item() for each in wanted.values())
    for name, each in model.named_parameters():
        got = (before[name].double() - each.detach().double()) / RATE
        error = (got - wanted[name]).abs().max().item()
        assert error <= tolerance * largest, f"{name}: {error:.3g} of {largest:.3g}"


def shifting(amount: float | None) -> Callable[..., Any]:
    """Attention whose second query, and every fourth, has the amount on all its scores."""

    def attend(
        query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, **kwargs: Any
    ) -> Any:
        shape, dtype = (query.shape[-2], key.shape[-2]), query.dtype
        number = torch.finfo(torch.float32).min if amount is None else amount
        shift = (torch.arange(shape[0]) % 4 == 1).to(dtype)[:, None] * number
        if is_causal:
            shift = shift + torch.zeros(shape, dtype=dtype).masked_fill(
                torch.ones(shape).triu(1) != 0, -math.inf
            )
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros(attn_mask.shape, dtype=dtype).masked_fill(~attn_mask, -math.inf)
        return sdpa(query, key, value, attn_mask=shift if attn_mask is None else shift + attn_mask, **kwargs)

    return attend


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", [name for name in CASES if name != "by hand"])
def test_cases_shifted(name: str, shift: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    amount, dtype, tolerance = SHIFTS[shift]
    monkeypatch.setattr(test_attention, "sdpa", shifting(amount))
    attend, groups = CASES[name]
    assert_gradients(Attention(attend, groups), test_attention.batch(), dtype, tolerance)


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_learned_mask_shifted(shift: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of positions is part of the mask: its gradient is that of the scores."""
    torch.manual_seed(1)
    amount, dtype, tolerance = SHIFTS[shift]
    monkeypatch.setattr(test_attention, "sdpa", shifting(amount))
    model = Relative()
    assert_gradients(model, {"x": test_attention.batch()["x"]}, dtype, tolerance)


def triangle(dtype: torch.dtype) -> torch.Tensor:
    """The least number of the type where a position must not look, and the second sees nothing else."""
    least = torch.finfo(dtype).min
    mask = torch.full((LENGTH, LENGTH), least, dtype=dtype).triu(1)
    mask[1] = least
    return mask


LAYERS: dict[str, Callable[[torch.dtype], nn.Module]] = {
    "encoder layer": lambda dtype: Layer(
        nn.TransformerEncoderLayer(SIZE, 2, 16, dropout=0.0, batch_first=True),
        lambda m, b: m(b["x"], src_mask=triangle(dtype).to(b["x"].dtype)),
    ),
    "encoder": lambda dtype: Layer(
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(SIZE, 2, 16, dropout=0.0, batch_first=True),
            2,
            enable_nested_tensor=False,
        ),
        lambda m, b: m(b["x"], mask=triangle(dtype).to(b["x"].dtype)),
    ),
    "multihead, without weights": lambda dtype: Layer(
        nn.MultiheadAttention(SIZE, 2, batch_first=True),
        lambda m, b: m(
            b["x"], b["x"], b["x"], attn_mask=triangle(dtype).to(b["x"].dtype), need_weights=False
        )[0],
    ),
    "multihead, with weights": lambda dtype: Layer(
        nn.MultiheadAttention(SIZE, 2, batch_first=True),
        lambda m, b: m(b["x"], b["x"], b["x"], attn_mask=triangle(dtype).to(b["x"].dtype))[0],
    ),
}


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_torch(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model = LAYERS[name](dtype).to(dtype)
    batch = {"x": torch.randn(BATCH, LENGTH, SIZE).to(dtype)}
    assert_gradients(model, batch, torch.float64, 1e-5 if dtype == torch.float32 else 6e-2)


def hidden_last(kind: str) -> Callable[..., Any]:
    """Attention in which nobody sees the last key; where it is causal, only the last query does."""
    shown = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    shown[:, -1], shown[2] = False, False

    def attend(query: Any, key: Any, value: Any, batch: Any) -> Any:
        if kind == "causal":
            return sdpa(query, key, value, is_causal=True)
        added = torch.zeros(LENGTH, LENGTH).masked_fill(~shown, -math.inf)
        return sdpa(query, key, value, attn_mask=shown if kind == "booleans" else added)

    return attend


NOT_FINITE = [
    *((kind, which) for kind in ("booleans", "added") for which in ("query", "key", "value")),
    ("causal", "value"),
]
"""What hides, and where a number is not finite: about a key that is_causal hides torch's own kernels disagree."""


class Parts(nn.Module):
    """Attention of three parameters."""

    def __init__(self, attend: Callable[..., Any], which: str, number: float):
        super().__init__()
        draw = torch.Generator().manual_seed(2)
        for name in ("query", "key", "value"):
            heads = torch.randn(1, 2, LENGTH, 3, generator=draw)
            if name == which:
                heads[0, 0, -1, 1] = number
            self.register_parameter(name, nn.Parameter(heads))
        self.attend = attend

    def forward(self, batch: Any) -> Any:
        return self.attend(self.query, self.key, self.value, batch)


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize(("kind", "which"), NOT_FINITE)
def test_what_is_not_finite_where_nobody_looks(kind: str, which: str, number: float, form: str) -> None:
    """A weight of 0 times it, as torch has it, in the loss and in each gradient."""
    model = Parts(hidden_last(kind), which, number)
    batch = {"x": torch.zeros(1)}
    wanted = gradients(model, batch, torch.float32)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu").train_step(batch)
    for name, each in model.named_parameters():
        got = (before[name] - each.detach()).double()
        lost = before[name].isfinite()  # infinity minus anything is infinity
        torch.testing.assert_close(got[lost], wanted[name][lost], rtol=1e-4, atol=1e-5, equal_nan=True)

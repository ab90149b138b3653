"""Losses that torch refuses for some values of the entry "v" of the batch, by ops and by assertions of Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NAN, INF = float("nan"), float("inf")
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
Batch = dict[str, Tensor]


class Net(nn.Module):
    """One factor; what is checked is an entry of the batch, or computed from both."""

    def __init__(self, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.5, -0.25, 1.0], dtype=dtype))


@dataclass(frozen=True)
class Case:
    """A loss of the entry "v", values that torch takes there, and such that it refuses."""

    loss: Callable[[Net, Mapping[str, Tensor]], Tensor]
    taken: tuple[float, ...]
    refused: tuple[float, ...]
    dtypes: tuple[torch.dtype, ...] = FLOATS
    rule: str = "condition"


def sampled(make: Callable[..., torch.distributions.Distribution]) -> Any:
    """Minus the log of the density of the weights."""
    return lambda m, b: -make(b["v"].float()).log_prob(m.w.detach().abs()).sum() + m.w.float().sum()


def guarded(m: Net, b: Mapping[str, Tensor]) -> Tensor:
    assert not b["v"].isnan().any(), "a NaN"
    return (m.w * b["v"]).sum()


def asked(m: Net, b: Mapping[str, Tensor]) -> Tensor:
    assert torch.all(b["v"] >= 0).item(), "negative"
    if not (b["v"] < 10).all().item():
        raise ValueError
    return (m.w * b["v"]).sum()


def raising(m: Net, b: Mapping[str, Tensor]) -> Tensor:
    if b["v"].max() > 10:
        raise ValueError(f"too large: {b['v']}")
    return (m.w * b["v"]).sum()


def asserting(m: Net, b: Mapping[str, Tensor]) -> Tensor:
    torch._assert_async((b["v"] >= 0).all(), "negative")  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    return (m.w * b["v"]).sum()


PROBABILITIES = (0.0, 1.0, 0.25, -0.0), (1.5, -0.25, NAN, INF, -INF)
NOT_NEGATIVE = (0.0, -0.0, 2.0, INF), (-1.0, -INF)
DIVISORS = (1, -2, 7), (0,)
WHOLE = (torch.int64, torch.int32)


def dividing(function: Callable[[Tensor, Tensor], Tensor]) -> Case:
    """Of whole numbers."""

    def loss(m: Net, b: Mapping[str, Tensor]) -> Tensor:
        return (m.w * function(torch.arange(3, dtype=b["v"].dtype, device=b["v"].device), b["v"])).sum()

    return Case(loss, *DIVISORS, WHOLE, "divisor")


CASES: dict[str, Case] = {
    "inverse": Case(
        lambda m, b: (m.w * torch.linalg.inv(torch.diag(b["v"]))).sum(),
        (1.0, -2.0, 7.0),
        (0.0, -0.0),
        (torch.float32, torch.float64),
        "pivot",
    ),
    "cholesky": Case(
        lambda m, b: (m.w * torch.linalg.cholesky(torch.diag(b["v"]))).sum(),
        (1.0, 0.25, 7.0),
        (0.0, -1.0, NAN),
        (torch.float32, torch.float64),
        "positive pivot",
    ),
    "bce of an input": Case(
        lambda m, b: F.binary_cross_entropy(b["v"], b["half"]) * m.w.sum(), *PROBABILITIES, rule="probability"
    ),
    "bce of a target": Case(
        lambda m, b: F.binary_cross_entropy(m.w.sigmoid(), b["v"]), *PROBABILITIES, rule="probability"
    ),
    "bce, weighted, a sum": Case(
        lambda m, b: F.binary_cross_entropy(m.w.sigmoid(), b["v"], m.w.detach(), reduction="sum"),
        *PROBABILITIES,
        rule="probability",
    ),
    "bernoulli": Case(lambda m, b: (m.w * torch.bernoulli(b["v"])).sum(), *PROBABILITIES, rule="probability"),
    "normal": Case(
        lambda m, b: (m.w * torch.normal(b["half"], b["v"])).sum(),
        NOT_NEGATIVE[0],
        (*NOT_NEGATIVE[1], NAN),
        (torch.float32, torch.float64),
        "deviation",
    ),
    "floor division": dividing(lambda x, y: x // y),
    "remainder": dividing(lambda x, y: x % y),
    "fmod": dividing(torch.fmod),
    "truncated": dividing(lambda x, y: torch.div(x, y, rounding_mode="trunc")),
    "gaussian nll": Case(
        lambda m, b: F.gaussian_nll_loss(m.w, b["half"], b["v"], full=True), (0.0, 2.0, NAN), (-1.0, -INF)
    ),
    "gaussian nll of a trained variance": Case(
        lambda m, b: F.gaussian_nll_loss(
            b["half"], m.w, (m.w * b["v"]).square() * b["v"].sign(), reduction="sum"
        ),
        (1.0, 1e-5),
        (-1.0,),
        FLOATS[:2],
    ),
    "an assert": Case(guarded, (1.0, INF), (NAN,)),
    "of item()": Case(asked, (0.0, 9.0), (-1.0, 10.0, NAN)),
    "a raise": Case(raising, (1.0, -INF, NAN), (11.0, INF)),
    "_assert_async": Case(asserting, (0.0, INF), (-1.0, NAN)),
    "Normal": Case(
        sampled(lambda v: torch.distributions.Normal(torch.zeros_like(v), v)),
        (1.0,),
        (0.0, -1.0, NAN),
        FLOATS[:1],
    ),
    "Bernoulli": Case(
        lambda m, b: (
            torch.distributions.Bernoulli(b["v"], validate_args=True).log_prob(b["half"].round()).sum()
            * m.w.sum()
        ),
        (0.25, 0.5),
        (1.5, NAN),
        FLOATS[:1],
    ),
}


def batch_of(values: tuple[float, ...], dtype: torch.dtype) -> Batch:
    """Three values from the front on, again and again."""
    v = torch.tensor([values[i % len(values)] for i in range(3)], dtype=dtype)
    floats = dtype if dtype.is_floating_point else torch.float32
    return {"v": v, "half": torch.tensor([0.25, 0.5, 0.75], dtype=floats)}

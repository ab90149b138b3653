"""A test that a tensor equals torch's up to rounding.

Torch runs again from parameters and inputs that are moved by a unit in the last place. A tensor may be three times as far from
torch as the worst of those runs, plus a few units in the last place of its scale. Two rules hold together: for the root mean
square over all elements, and, with more room, for each element, so that one wrong row of a large table shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

FACTOR = 3.0
OWN_SPREAD, COMMON_SPREAD = 12.0, 4.0
"""The allowed error of one element, in multiples of the spread of its own runs and of the tensor's average spread."""


@dataclass(frozen=True)
class Judged:
    """The distance of a tensor from torch's."""

    error: float
    allowed: float
    why: str = ""


@dataclass(eq=False)
class Spread:
    """How far runs of torch are from one of them, element by element. Nothing else of them is kept."""

    truth: torch.Tensor
    """The one, in f64 on the host."""
    noise: torch.Tensor
    """The largest distance of a run."""
    finite: torch.Tensor
    """True where all runs are finite."""
    sure: torch.Tensor
    """True where all runs are finite or the same infinity or NaN."""
    runs: int = 0

    @classmethod
    def around(cls, truth: torch.Tensor) -> Spread:
        """Return that of no runs."""
        finite = truth.isfinite()
        return cls(truth, torch.zeros_like(truth), finite, torch.ones_like(finite))

    def widen(self, run: torch.Tensor) -> None:
        """Add a run, of the same shape."""
        same = (run == self.truth) | (run.isnan() & self.truth.isnan())
        self.sure &= same | (run.isfinite() & self.finite)
        self.finite &= run.isfinite()
        self.noise = torch.maximum(self.noise, (run - self.truth).abs())
        self.runs += 1


def judge(
    ours: torch.Tensor,
    spread: Spread,
    relative: float,
    slack: torch.Tensor | float = 0.0,
    kindred: float = 0.0,
    decided: torch.Tensor | None = None,
) -> Judged:
    """Compare `ours`, in f64 on the host, with torch; an error of `relative` times its scale is always allowed.

    `kindred` is the largest scale among tensors of its kind: a sum that cancels to nothing is as exact as its terms.
    `slack` is allowed for each element in addition. Elements that are not `decided` are left out: rounding alone
    chooses them.
    """
    truth, finite = spread.truth, spread.finite
    if ours.shape != truth.shape:
        return Judged(torch.inf, 0.0, f"has shape {list(ours.shape)}, torch's has {list(truth.shape)}")
    special = spread.sure & ~truth.isfinite()
    same = (ours == truth) | (ours.isnan() & truth.isnan())
    if bool((special & ~same).any()) or bool((finite & ~ours.isfinite()).any()):
        return Judged(torch.inf, 0.0, "NaN or infinity at other places")
    if decided is not None:
        finite = finite & decided
    if not finite.any():
        return Judged(0.0, 0.0)
    error = (ours - truth)[finite].abs()
    noise = spread.noise[finite]
    scale = rms(truth[finite])
    own = slack[finite] if isinstance(slack, torch.Tensor) else torch.full_like(error, slack)
    floor = relative * max(scale, kindred)
    allowed = FACTOR * rms(noise) + floor + rms(own)
    judged = Judged(rms(error), allowed)
    if judged.error > allowed:
        return Judged(
            judged.error, allowed, f"error {judged.error:.3g}, allowed {allowed:.3g} at scale {scale:.3g}"
        )
    limit = OWN_SPREAD * noise + COMMON_SPREAD * (rms(noise) + floor) + 4 * own
    if bool((error > limit).any()):
        at = int((error - limit).argmax())
        place = int(finite.flatten().nonzero()[at])
        why = f"element {place} misses by {float(error[at]):.3g}, allowed {float(limit[at]):.3g} at scale {scale:.3g}"
        return Judged(judged.error, allowed, why)
    return judged


def decided_by(spread: Spread, unit: float) -> torch.Tensor:
    """Return a mask of elements whose gradient exceeds rounding: elsewhere an optimizer that divides by its size makes
    full steps of noise.
    """
    gradient, noise = spread.truth, spread.noise
    if not spread.runs:
        return torch.ones_like(gradient, dtype=torch.bool)
    is_noise = (
        gradient.abs()
        <= torch.maximum(8 * noise, torch.as_tensor(max(rms(noise), 2 * unit * rms(gradient)), device="cpu"))
    ) & ((noise > 0) | (gradient != 0))
    return ~is_noise


def rms(values: torch.Tensor) -> float:
    """Return the root mean square, without overflow; of finite numbers."""
    if not values.numel():
        return 0.0
    largest = float(values.abs().max())
    return largest * float((values / largest).square().mean().sqrt()) if 0 < largest < torch.inf else largest

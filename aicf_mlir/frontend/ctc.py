"""Connectionist temporal classification with tensors: torch's own op has outputs whose shapes depend on values.

The source is Graves et al., "Connectionist Temporal Classification", 2006: forward variables of all alignments, in logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import pad

Tensor = torch.Tensor
Lengths = Tensor | Sequence[int]

NEVER = -1e30
"""The logarithm of what does not happen: finite, so that sums and their gradients are too."""


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Compute torch's loss of that name, of `log_probs` [T, N, C] or [T, C] and of targets [N, S], or one after the other.

    The gradient is torch's: that of normalized probabilities, which adds `exp(log_probs)`, and NaN where there is no alignment.
    Raises ValueError for lengths that are larger than the tensors, and for another type than torch takes.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if log_probs.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"ctc_loss of {log_probs.dtype}; expected float32 or float64")
    is_single = log_probs.dim() == 2
    if is_single:
        log_probs, targets = log_probs.unsqueeze(1), targets.reshape(1, -1)
    steps, count, classes = log_probs.shape
    if targets.dim() == 1:
        targets = apart(targets, target_lengths, count)
    if not 0 <= blank < classes:
        raise ValueError(f"blank must be in the {classes} classes, got {blank}")
    times = lengths_of(input_lengths, count, steps, "input_lengths", log_probs)
    sizes = lengths_of(target_lengths, count, targets.shape[1], "target_lengths", log_probs)
    is_there = torch.arange(targets.shape[1], device=targets.device) < sizes[:, None]
    targets = torch.where(is_there, targets.long(), blank)  # what pads them may be no class
    lost = -likelihoods(log_probs, targets, times, sizes, blank)
    impossible = lost > -NEVER / 2
    at = torch.arange(steps, device=log_probs.device)[:, None] < times
    moved = torch.where(at[:, :, None], log_probs - log_probs.detach(), 0.0)  # 0, with a gradient of 1
    lost = lost + (log_probs.exp().detach() * moved).sum((0, 2))
    never = -torch.where(impossible, moved.sum((0, 2)), 1.0).abs().log()  # infinity, with a gradient of NaN
    lost = torch.where(impossible, 0.0 if zero_infinity else never, lost)
    if reduction == "mean":
        return (lost / sizes.clamp(min=1).to(lost.dtype)).mean()
    if reduction == "sum":
        return lost.sum()
    return lost.squeeze(0) if is_single else lost


def likelihoods(log_probs: Tensor, targets: Tensor, times: Tensor, sizes: Tensor, blank: int) -> Tensor:
    """Return for each sequence the logarithm of the probability of all alignments, about `NEVER` where there is none."""
    steps, count, _ = log_probs.shape
    length = targets.shape[1]
    labels = torch.full((count, 2 * length + 1), blank, dtype=torch.long, device=targets.device)
    if length:
        labels = torch.stack((torch.full_like(targets, blank), targets), 2).flatten(1)
        labels = pad(labels, (0, 1), value=blank)
    given = log_probs.clamp(min=NEVER).gather(2, labels.expand(steps, -1, -1))
    other = pad(labels[:, 2:] != labels[:, :-2], (min(2, labels.shape[1]), 0))
    skips = torch.where(other & (labels != blank), 0.0, NEVER).to(given.dtype)
    begins = torch.arange(2 * length + 1, device=targets.device) < 2
    alpha = torch.where(begins, given[0], NEVER)
    for step in range(1, steps):
        ways = [alpha]
        if length:
            ways += [pad(alpha[:, :-1], (1, 0), value=NEVER), pad(alpha[:, :-2], (2, 0), value=NEVER) + skips]
        new = torch.logsumexp(torch.stack(ways), 0) + given[step]
        alpha = torch.where((step < times)[:, None], new, alpha)
    ends = alpha.gather(1, torch.stack((2 * sizes, (2 * sizes - 1).clamp(min=0)), 1))
    second = torch.where(sizes[:, None] > 0, ends[:, 1:], NEVER)
    return torch.logsumexp(torch.cat((ends[:, :1], second), 1), 1)


def apart(targets: Tensor, sizes: Lengths, count: int) -> Tensor:
    """Return the targets of all sequences, one after the other, as rows: as long as the longest, or as all if that is unknown.

    Raises ValueError if there are more or fewer than the sizes say.
    """
    most = len(targets) if isinstance(sizes, Tensor) else max(sizes, default=0)
    wanted = lengths_of(sizes, count, most, "target_lengths", targets)
    if torch.any(wanted.sum() != len(targets)):
        raise ValueError(f"expected target_lengths that are {len(targets)} together")
    at = (wanted.cumsum(0) - wanted)[:, None] + torch.arange(most, device=targets.device)
    return targets[at.clamp(max=len(targets) - 1)] if len(targets) else targets.new_zeros((count, 0))


def lengths_of(given: Lengths, count: int, most: int, name: str, like: Tensor) -> Tensor:
    """Return the lengths [N] on a device. Raises ValueError for another number of them, and for one that is out of range."""
    lengths = given if isinstance(given, Tensor) else torch.tensor(given, device=like.device)
    lengths = lengths.to(like.device).long().reshape(-1)
    if lengths.shape[0] != count:
        raise ValueError(f"expected {count} {name}, got {lengths.shape[0]}")
    if torch.any((lengths < 0) | (lengths > most)):
        raise ValueError(f"{name} must be from 0 to {most}")
    return lengths

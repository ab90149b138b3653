"""When is a number right? The rule that every numeric test of training uses.

The reference is torch in float64, the yardstick torch in the tested precision. A result is wrong when its NaN
and infinity masks differ from torch's, or when its root-mean-square error against the reference exceeds three
times torch's own, plus 25 units in the last place of the values' scale (3e-6 of it in float32), so that a
lucky torch does not count as an error of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

FACTOR = 3.0
UNITS_IN_LAST_PLACE = 25.0


def root_mean_square(values: torch.Tensor) -> float:
    """sqrt(mean(values²)); 0 for no values."""
    return float(values.double().square().mean().sqrt()) if values.numel() else 0.0


def fault(
    ours: torch.Tensor, torch_runs: Sequence[torch.Tensor], reference: torch.Tensor, noise: float = 0.0
) -> str | None:
    """Why `ours` is wrong, or None when it is right.

    `torch_runs` are torch's results in the precision of `ours`: the first sets the masks, the worst the error
    that is allowed. `reference` is torch in float64. `noise` is allowed besides.
    """
    ours, reference = ours.detach().cpu(), reference.detach().cpu()
    runs = [run.detach().cpu() for run in torch_runs]
    if ours.shape != runs[0].shape:
        return f"shape {list(ours.shape)}, torch has {list(runs[0].shape)}"
    if ours.dtype != runs[0].dtype:
        return f"dtype {ours.dtype}, torch has {runs[0].dtype}"
    for mask, name in ((torch.isnan, "NaN"), (torch.isposinf, "+Inf"), (torch.isneginf, "-Inf")):
        different = mask(ours) != mask(runs[0])
        if different.any():
            where = different.nonzero()[0].tolist()
            return f"{name} at other places than in torch: {int(different.sum())} elements, first at {where}"
    finite = torch.isfinite(runs[0]) & torch.isfinite(reference)
    for run in runs:
        finite &= torch.isfinite(run)
    expected = reference.double()[finite]
    error = root_mean_square(ours.double()[finite] - expected)
    of_torch = max(root_mean_square(run.double()[finite] - expected) for run in runs)
    scale = root_mean_square(expected)
    allowed = FACTOR * of_torch + UNITS_IN_LAST_PLACE * torch.finfo(ours.dtype).eps * scale + noise
    if error <= allowed:
        return None
    return (
        f"error {error:.3e} against float64, torch's own {of_torch:.3e}, allowed {allowed:.3e}"
        f" (scale {scale:.3e})"
    )


def assert_right(what: str, ours: torch.Tensor, torch_run: torch.Tensor, reference: torch.Tensor) -> None:
    """Fail with the reason when `ours` is wrong; see `fault`."""
    why = fault(ours, [torch_run], reference)
    assert why is None, f"{what}: {why}"


def assert_all_right(
    ours: Mapping[str, torch.Tensor],
    torch_run: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
) -> None:
    """`assert_right` for every tensor by name; the names must be the same too."""
    assert list(ours) == list(torch_run), f"names differ: {sorted(set(ours) ^ set(torch_run))}"
    faults = [
        f"{name}: {why}" for name in ours if (why := fault(ours[name], [torch_run[name]], reference[name]))
    ]
    assert not faults, "\n".join(faults)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same shape, type and bytes (NaN equals NaN, +0 differs from -0)."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.detach().cpu().contiguous(), b.detach().cpu().contiguous()
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def _largest_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.cpu().double() - b.cpu().double()).abs().max())


def assert_same_bits(ours: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Fail with the names, and the largest difference, of all tensors that are not bitwise equal."""
    assert sorted(ours) == sorted(expected), f"names differ: {sorted(set(ours) ^ set(expected))}"
    different = [name for name in ours if not same_bits(ours[name], expected[name])]
    assert not different, "not bitwise equal: " + ", ".join(
        f"{name} (largest difference {_largest_difference(ours[name], expected[name]):.3e})"
        for name in different
    )

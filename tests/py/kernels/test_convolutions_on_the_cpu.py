"""Convolutions of f32 on the CPU beside torch in f64: any stride, dilation, padding, groups, rank, threads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from aicf_mlir import _C, OpKind, op_call

KINDS = {
    "y": OpKind.Convolution,
    "x": OpKind.ConvolutionInputGrad,
    "w": OpKind.ConvolutionWeightGrad,
}
"""By the result."""

Ints = tuple[int, ...]


class Case(NamedTuple):
    """A convolution of images [images, channels, *spatial]."""

    images: int
    channels: int
    outputs: int
    groups: int
    spatial: Ints
    kernel: Ints
    stride: Ints
    dilation: Ints
    low: Ints
    high: Ints
    """Padding behind the last element; below 0 elements that no window reaches."""

    @property
    def size(self) -> Ints:
        """Windows in each dimension, 0 where the kernel is larger than the image."""
        numbers = zip(self.spatial, self.kernel, self.stride, self.dilation, self.low, self.high, strict=True)
        return tuple(
            max(0, (size + low + high - dilation * (kernel - 1) - 1) // stride + 1)
            for size, kernel, stride, dilation, low, high in numbers
        )


HAND = {
    "3x3": Case(4, 64, 64, 1, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "several chains": Case(2, 128, 40, 1, (7, 9), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "chains within a position": Case(2, 600, 33, 1, (3, 3), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
    "few channels": Case(5, 3, 64, 1, (11, 13), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "one channel": Case(9, 1, 6, 1, (28, 28), (5, 5), (1, 1), (1, 1), (2, 2), (2, 2)),
    "stride": Case(3, 16, 24, 1, (9, 10), (3, 3), (2, 2), (1, 1), (1, 1), (0, 1)),
    "stride beyond the kernel": Case(2, 8, 8, 1, (9, 10), (1, 2), (3, 3), (1, 1), (0, 1), (0, 2)),
    "stride and dilation": Case(2, 8, 12, 1, (17, 16), (3, 4), (2, 4), (2, 2), (3, 1), (1, 5)),
    "patches": Case(2, 3, 48, 1, (16, 16), (4, 4), (4, 4), (1, 1), (0, 0), (0, 0)),
    "kernel larger than the image": Case(2, 8, 8, 1, (3, 4), (7, 9), (1, 1), (1, 1), (3, 4), (3, 4)),
    "many kinds of windows": Case(2, 32, 8, 1, (24, 3), (23, 3), (1, 1), (1, 1), (11, 1), (11, 1)),
    "stride beyond the image": Case(2, 8, 8, 1, (3, 4), (2, 2), (900, 900), (1, 1), (0, 0), (0, 0)),
    "stride over one element": Case(2, 1, 3, 1, (1, 1), (1, 1), (1, 3), (1, 1), (0, 0), (0, 0)),
    "stride along a line of one": Case(3, 8, 5, 1, (4, 1), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    "no window": Case(2, 8, 8, 1, (3, 3), (5, 5), (1, 1), (1, 1), (0, 0), (0, 0)),
    "no image": Case(0, 8, 8, 1, (3, 3), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "groups": Case(3, 48, 64, 4, (6, 7), (3, 3), (2, 1), (1, 1), (1, 1), (1, 1)),
    "groups of few": Case(3, 4, 6, 2, (6, 7), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "depthwise": Case(3, 40, 40, 40, (17, 19), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "depthwise, stride": Case(2, 16, 16, 16, (9, 21), (5, 3), (2, 2), (1, 1), (2, 1), (2, 1)),
    "depthwise, dilation": Case(2, 24, 24, 24, (9, 21), (3, 5), (1, 3), (3, 2), (3, 2), (3, 1)),
    "depthwise, several outputs": Case(2, 8, 16, 8, (6, 6), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "depthwise, no window": Case(2, 8, 8, 8, (3, 3), (5, 5), (1, 1), (1, 1), (0, 0), (0, 0)),
    "depthwise, no image": Case(0, 8, 8, 8, (3, 3), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "1d": Case(3, 20, 36, 1, (50,), (7,), (2,), (1,), (3,), (4,)),
    "3d": Case(2, 12, 20, 1, (5, 6, 7), (3, 2, 3), (1, 2, 1), (1, 1, 2), (1, 0, 2), (1, 1, 2)),
    "3d depthwise": Case(2, 17, 17, 17, (5, 6, 7), (3, 2, 3), (1, 2, 1), (1, 1, 2), (1, 0, 2), (1, 1, 2)),
}


def drawn(seed: int) -> Case:
    """A case by chance."""
    rng = np.random.default_rng(seed)

    def numbers(low: int, high: int) -> Ints:
        return tuple(int(n) for n in rng.integers(low, high, rank))

    rank = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 1, 2, 5]))
    channels, outputs = (groups * int(rng.integers(1, 40)) for _ in range(2))
    if rng.random() < 0.3:
        groups = outputs = channels
    return Case(
        int(rng.integers(1, 5)), channels, outputs, groups, numbers(1, 12), numbers(1, 5), numbers(1, 4), numbers(1, 4),
        numbers(0, 4), numbers(0, 4),
    )  # fmt: skip


CASES = {**HAND, **{f"drawn {seed}": drawn(seed) for seed in range(40)}}


def to_last(x: torch.Tensor) -> np.ndarray:
    """[N, C, spatial] as f32 [N, spatial, C]."""
    return np.ascontiguousarray(x.movedim(1, -1).float().numpy())


def tensors(case: Case) -> dict[str, torch.Tensor]:
    """X, w and y or their gradients, f64, all drawn."""
    generator = torch.Generator(device="cpu").manual_seed(len(str(case)))
    shapes = {
        "x": (case.images, case.channels, *case.spatial),
        "w": (case.outputs, case.channels // case.groups, *case.kernel),
        "y": (case.images, case.outputs, *case.size),
    }
    return {
        name: torch.randn(shape, dtype=torch.float64, device="cpu", generator=generator).float().double()
        for name, shape in shapes.items()
    }


def expected(case: Case, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """By torch in f64; each result, and for it the sum of the absolute values of its terms."""

    def both(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> dict[str, torch.Tensor]:
        if 0 in given["y"].shape:
            return {"y": torch.zeros_like(g), "x": torch.zeros_like(x), "w": torch.zeros_like(w)}
        x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
        sides = [each for pair in zip(case.low[::-1], case.high[::-1], strict=True) for each in pair]
        convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(case.kernel)]
        y = convolve(F.pad(x, sides), w, None, case.stride, 0, case.dilation, case.groups)
        dx, dw = torch.autograd.grad(y, (x, w), g)
        return {"y": y.detach(), "x": dx, "w": dw}

    terms = both(given["x"].abs(), given["w"].abs(), given["y"].abs())
    return {**both(given["x"], given["w"], given["y"]), **{f"|{k}|": v for k, v in terms.items()}}


def computed(
    case: Case, given: dict[str, torch.Tensor], result: str, kernel: str = ""
) -> tuple[np.ndarray, str]:
    """By our kernel, channels last, over memory that is poisoned; and the kernel."""
    operands = [to_last(value) for name, value in given.items() if name != result]
    if result == "x":
        operands.reverse()  # dy, then w
    out = np.full_like(to_last(given[result]), np.nan)
    attrs = {
        "stride": list(case.stride),
        "dilation": list(case.dilation),
        "low": list(case.low),
        "groups": case.groups,
        "size": list(given[result].shape[2:]),
        "channels_last": True,
    }
    name = op_call(KINDS[result], operands, [out], attrs, kernel)
    return out, name


@pytest.mark.parametrize("result", KINDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_as_torch_in_f64(case: Case, result: str) -> None:
    """Within the rounding of as many terms, with the same bits by any number of threads."""
    given = tensors(case)
    reference = expected(case, given)
    out, kernel = computed(case, given, result)
    own = case.channels // case.groups, case.outputs // case.groups
    if case.groups > 1 and own == (1, 1):
        assert kernel.endswith("_cpu_depthwise")
    elif case.groups == 1 or min(own) >= 8:
        assert kernel.endswith("_cpu_products")
    else:
        assert kernel.endswith("_cpu")
    bound = 2e-6 * np.abs(to_last(reference[f"|{result}|"])) + 1e-12
    wrong = np.abs(out - to_last(reference[result])) > bound
    assert not wrong.any() and not np.isnan(out).any(), f"{wrong.sum()} of {out.size} elements by {kernel}"
    for threads in (1, 2, 3):
        again, _ = with_threads(threads, case, given, result)
        assert again.tobytes() == out.tobytes(), f"other bits with {threads} threads"


def with_threads(
    count: int, case: Case, given: dict[str, torch.Tensor], result: str
) -> tuple[np.ndarray, str]:
    """`computed` by so many threads."""
    before = _C.threads()
    _C.set_threads(count)
    try:
        return computed(case, given, result)
    finally:
        _C.set_threads(before)

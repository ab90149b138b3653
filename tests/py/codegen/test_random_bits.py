"""Normal and exponential numbers of f32: how exact they are, and that the code of both devices gives the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bodies import tensor
from cuda_on_host import HostKernels
from generated_cases import GeneratedCase
from native_code import Array, Loaded, placed
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.dialects.nn import random_laws
from aicf_mlir.dialects.nn.randomness import words
from aicf_mlir.interpreters.body import philox
from aicf_mlir.ir.body import PHILOX
from aicf_mlir.ir.formula import Scalar, trace
from aicf_mlir.kernels.kernel import Kernel

COUNT = 1 << 24
LAWS = {"normal": random_laws.normal, "exponential": random_laws.exponential}


def kernel_of(formula: Callable[..., Any], element: str, size: int, result: str, target: str) -> Kernel:
    """A map of one dimension, of one operand, or of a seed and a step."""
    types = ["i64", "i64"] if element == "i64" else [element]
    operands = tuple(tensor(each, size, strides=[0] if element == "i64" else None) for each in types)
    made = Kernel("map", target, trace(types, formula), (size,), 0, operands, (tensor(result, size),))
    made.verify()
    return made


def on_cpu(kernel: Kernel, values: list[Array]) -> Array:
    """What the CPU's code gives."""
    operands = [placed(t, value).array for t, value in zip(kernel.operands, values, strict=True)]
    result = placed(kernel.results[0])
    Loaded(kernel)([*operands, result.array], 1)
    return np.array(result.array)


def edges() -> Array:
    """Counts from 1 to 2^24: powers of two, quarters of a turn, where a logarithm changes its power, and their neighbours."""
    middles = [1 << n for n in range(25)] + [n * COUNT // 8 for n in range(9)]
    middles += [round(math.sqrt(0.5) * 2**n) for n in range(1, 25)]
    near = {middle + step for middle in middles for step in range(-40, 41)}
    drawn = np.random.default_rng(0).integers(1, COUNT + 1, 2_000_000)
    return np.array(sorted({*(n for n in near if 1 <= n <= COUNT), *drawn.tolist()}), np.int32)


def units(got: Array, exact: Array) -> float:
    """The largest error, in units of the last place of the exact number in f32."""
    place = np.spacing(np.maximum(np.abs(exact), 2.0**-126).astype(np.float32)).astype(np.float64)
    return float((np.abs(got.astype(np.float64) - exact) / place).max())


def test_the_logarithm_of_a_count() -> None:
    counts = edges()
    got = on_cpu(kernel_of(random_laws.log_of_count, "i32", len(counts), "f32", "cpu"), [counts])
    assert units(got, np.log(counts / COUNT)) < 1.5
    assert got[-1] == 0.0 and counts[-1] == COUNT


def test_the_cosine_of_a_count() -> None:
    """At a quarter of a turn, where it crosses 0, too."""
    counts = edges()[:-1]
    got = on_cpu(kernel_of(random_laws.cos_of_count, "i32", len(counts), "f32", "cpu"), [counts])
    turns = counts.astype(np.int64)
    nearest = (turns + COUNT // 8) // (COUNT // 4)
    rest = (turns - nearest * (COUNT // 4)) / COUNT * 2 * math.pi
    rows = [np.cos(rest), -np.sin(rest), -np.cos(rest), np.sin(rest)]
    exact = np.choose(nearest % 4, rows)
    assert units(got, exact) < 1.5
    assert (got[np.isin(counts, (COUNT // 4, 3 * COUNT // 4))] == 0.0).all()


def element(law: str) -> Callable[[Scalar, Scalar], Scalar]:
    """What a random op computes."""

    def formula(seed: Scalar, step: Scalar) -> Scalar:
        return LAWS[law](words(seed, step, 3, (1 << 12,)), "f32")

    return formula


CONTRACTED = ("-O2", "-march=native", "-ffp-contract=fast")
"""As NVRTC does, a product and an addition become one fused multiply-add wherever they can."""


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("stored", ["f32", "f16", "bf16"])
def test_the_code_for_a_gpu_gives_the_bits_of_the_code_for_a_cpu(
    law: str, stored: str, tmp_path: Path
) -> None:
    size, given = 1 << 12, [np.array([-7], np.int64), np.array([5], np.int64)]
    cpu, gpu = (kernel_of(element(law), "i64", size, stored, target) for target in ("cpu", "sm_90"))
    repeated = [np.broadcast_to(value, (size,)) for value in given]
    expected = on_cpu(cpu, repeated)
    host = HostKernels([gpu], tmp_path, flags=CONTRACTED)
    (got,) = host.run(GeneratedCase(law, gpu, tuple(given), ()))
    assert got.tobytes() == expected.tobytes()
    assert len(np.unique(expected)) > 100


def test_the_code_for_both_gives_the_words_of_numpy(tmp_path: Path) -> None:
    """All four, of numbers whose 64 bits are all drawn."""
    drawn = np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, (4, 1000))
    given = [np.array(row, np.int64) for row in drawn]
    one = tensor("i64", 1000)
    body = trace(["i64"] * 4, lambda *of: [of[0].apply(PHILOX, *of[1:], attr=word) for word in range(4)])
    cpu, gpu = (Kernel("map", to, body, (1000,), 0, (one,) * 4, (one,) * 4) for to in ("cpu", "sm_90"))
    expected = [philox(word, *given) for word in range(4)]
    results = [placed(one).array for _ in range(4)]
    Loaded(cpu)([*(placed(one, value).array for value in given), *results], 1)
    np.testing.assert_array_equal(results, expected)
    host = HostKernels([gpu], tmp_path, flags=CONTRACTED)
    np.testing.assert_array_equal(host.run(GeneratedCase("words", gpu, tuple(given), ())), expected)


class Noise(nn.Module):
    """Of each law, as one writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        drawn = torch.stack([torch.randn_like(x), torch.empty_like(x).exponential_()])
        return self.scale * drawn


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_both_devices_draw_the_same_bits(dtype: torch.dtype) -> None:
    found: list[torch.Tensor] = []
    for device in ("cpu", "cuda"):
        model = Noise().to(dtype).to(device)
        step = compile_train_step(
            model,
            torch.optim.SGD(model.parameters(), lr=0.0),
            loss_fn=lambda m, b: (lambda y: (y.float().mean(), {"drawn": y}))(m(b["x"])),
            example={"x": torch.zeros(1000, 100, dtype=dtype, device=device)},
            device=device,
            seed=11,
        )
        step.train_step({"x": torch.zeros(1000, 100, dtype=dtype, device=device)})
        found.append(step.outputs["drawn"].cpu())
    assert torch.equal(*(each.view(torch.uint8) for each in found))

"""Powers of integers in bodies: on the CPU, and in the text for GPUs on the host, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cuda_on_host import HostKernels
from generated_cases import Array, GeneratedCase, dense, view
from native_code import placed, run
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir import formula as F
from aicf_mlir.ir.body import Line, check_line
from aicf_mlir.kernels.kernel import Kernel

BASES = (0.9, 0.999, 0.999999, 1.0, -0.5, 0.0, 1.5, np.inf)
EXPONENTS = (0, 1, 2, 3, 17, 1000, 65535, 1 << 24, -1, -20)


def kernel_of(target: str, element: str) -> tuple[Kernel, list[Array]]:
    pairs = [(base, exponent) for base in BASES for exponent in EXPONENTS]
    count, body = len(pairs), F.trace([element, "i64"], F.integer_power)
    given = [np.array([x for x, _ in pairs], element.replace("f", "float")), np.array([n for _, n in pairs])]
    types = (dense(element, count), dense("i64", count))
    return Kernel("map", target, body, (count,), 0, types, (dense(element, count),)), given


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_powers(target: str, element: str, tmp_path: Path) -> None:
    """To some 1e-10, which a million products of rounded factors may be off."""
    kernel, given = kernel_of(target, element)
    with np.errstate(all="ignore"):
        expected = np.float_power(given[0].astype(np.float64), given[1]).astype(given[0].dtype)
    kernel.verify()
    if target == "cpu":
        (found,) = run(
            kernel, [placed(t, array).array for t, array in zip(kernel.operands, given, strict=True)]
        )
    else:
        case = GeneratedCase("powers", kernel, tuple(given), (expected,))
        found = view(HostKernels([kernel], tmp_path).run(case)[0], kernel.results[0])
    least = 1e-30 if element == "f32" else 1e-290
    np.testing.assert_allclose(found, expected, rtol=1e-6 if element == "f32" else 1e-9, atol=least)


def test_the_exponent_is_an_integer() -> None:
    with pytest.raises(VerifyException, match="expected a float of the result's type and an integer"):
        check_line(Line("math.fpowi", (0, 1), "f64"), ["f64", "f64"])

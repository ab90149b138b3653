"""Products on tensor cores whose k is divided: into how many parts, with how much memory, and which steps each has."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from generated_cases import Array, far_off, view
from product_cases import TRANSPOSES, ProductCase, make, rounded_to_tf32
from test_products import HostProducts

from aicf_mlir import _C
from aicf_mlir.kernels.kernel import Code

M, N, K, DEPTH, PARTS = 40, 24, 165, 64, 3


def workspace(sizes: tuple[int, int, int], element: str, trans_a: bool, bias_grad: bool) -> int:
    """Bytes that the first kernel asks for."""
    m, n, k = sizes
    operands = [(element, (k, m) if trans_a else (m, k)), (element, (k, n))]
    results = [(element, (m, n)), *([(element, (m,))] if bias_grad else [])]
    attributes = {"trans_a": trans_a, "allow_tf32": element == "f32"}
    op, counts = ("gemm_epilogue", ((1, 1, 0, 0), (1, 0, 1))) if bias_grad else ("gemm", None)
    return _C.select_kernel(op, operands, results, attributes, "sm_90", "", counts)[1]


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ((64, 256, 256), 0),
        ((1024, 1024, 1024), 0),
        ((1024, 1024, 8191), 0),
        ((1024, 1024, 8192), 4),
        ((8192, 4096, 4096), 0),
        ((262144, 128, 128), 0),
        ((128, 128, 262144), 128),
        ((768, 768, 32768), 7),
        ((768, 3072, 32768), 3),
        ((768, 50304, 32768), 0),
        ((10, 64, 8192), 32),
        ((10, 64, 2048), 8),
        ((10, 64, 2047), 0),
        ((0, 64, 8192), 0),
        ((64, 0, 8192), 0),
    ],
)
def test_parts_follow_from_the_sizes(sizes: tuple[int, int, int], parts: int) -> None:
    m, n, _ = sizes
    for element in ("bf16", "f16", "f32"):
        for trans_a in (False, True):
            assert workspace(sizes, element, trans_a, False) == parts * m * n * 4
            assert workspace(sizes, element, trans_a, True) == parts * (m * n + m) * 4


def test_members_of_a_batch_are_not_divided() -> None:
    a, b, out = ("bf16", (2, 16, 8192)), ("bf16", (2, 8192, 16)), ("bf16", (2, 16, 16))
    assert _C.select_kernel("gemm", [a, b], [out], {}, "sm_90") == ("gemm_bf16_tc", 0)


@dataclass(frozen=True)
class PartsCase(ProductCase):
    """A product whose members are parts of one: DEPTH steps of K each, and what is left."""

    whole: ProductCase
    sums: Array
    """The second result."""

    @cached_property
    def blocks(self) -> list[Array]:
        """With a and b of the whole product."""
        return [*self.whole.blocks[:2], *super().blocks[2:]]

    @cached_property
    def code(self) -> Code:
        """As the prebuilt kernel of the parts has its problem."""
        code = super().code
        source, count = re.subn(r"(Problem problem = \{.*\})\};", rf"\1, {K}}};", code.source)
        assert count == 1
        return replace(code, source=source)


def divided(element: str, trans: tuple[bool, bool]) -> PartsCase:
    """The operands of the whole product, the results of its parts."""
    name = f"parts {element} {'nt'[trans[0]]}{'nt'[trans[1]]}"
    whole = make(name, element, (M, N, K), trans, gap=8)
    parts = make(
        name, element, (M, N, DEPTH), trans, batch=(PARTS, 1), size="small"
    )  # those of 16 are not divided
    a, b = whole.problem.a, whole.problem.b
    problem = replace(
        parts.problem,
        a=replace(a, outer=DEPTH * (a.leading if trans[0] else 1)),
        b=replace(b, outer=DEPTH * (1 if trans[1] else b.leading)),
    )
    x, y = (
        view(block, tensor)[0, 0].astype(np.float64)
        for block, tensor in zip(whole.blocks[:2], whole.operands[:2], strict=True)
    )
    x, y = (x.T if trans[0] else x), (y.T if trans[1] else y)
    if problem.allow_tf32:
        x, y = rounded_to_tf32(x), rounded_to_tf32(y)
    steps = [slice(DEPTH * part, DEPTH * (part + 1)) for part in range(PARTS)]
    sums = np.stack([x[:, some] @ y[some] for some in steps])[:, None]
    return PartsCase(
        name,
        problem,
        parts.tile,
        parts.neighbours,
        (*whole.operands[:2], *parts.operands[2:]),
        parts.results,
        trans,
        False,
        whole,
        sums,
    )


def test_on_the_host_each_part_has_its_steps_and_the_last_one_what_is_left(tmp_path: Path) -> None:
    cases = [divided(element, trans) for element in ("bf16", "tf32", "f32", "f64") for trans in TRANSPOSES]
    host = HostProducts(cases, tmp_path)
    for case in cases:
        found = host.run(case)
        tensor = case.results[1]
        assert not far_off(view(found[1], tensor), case.sums, tensor.element), case.name

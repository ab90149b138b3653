"""Every kernel variant against the interpreter: on the CPU, and on a GPU where there is one (`-m gpu`)."""

from __future__ import annotations

import pytest
from kernel_calls import alias_pairs, judge, run, supports
from kernel_cases import FLOATS, GENERATORS, Case, cases

from aicf_mlir import _C
from aicf_mlir.ir.registry import schemas

VARIANTS = _C.kernel_variants()


def _parameter(variant: _C.KernelVariant):
    marks = [pytest.mark.gpu] if variant["device"] == "cuda" else []
    marks += [getattr(pytest.mark, variant["library"])] if variant["library"] else []
    return pytest.param(variant["name"], variant["op"], variant["device"], id=variant["name"], marks=marks)


every_variant = pytest.mark.parametrize(("kernel", "op", "device"), [_parameter(v) for v in VARIANTS])


def _target(device: str) -> str:
    return "cpu" if device == "cpu" else _C.target_of("cuda:0")


def _supported(kernel: str, op: str, device: str) -> list[Case]:
    """The cases that the kernel takes, over all element types."""
    target = _target(device)
    return [case for dtype in FLOATS for case in cases(op, dtype) if supports(kernel, op, case, target)]


def test_every_op_has_cases():
    assert set(GENERATORS) <= set(schemas())
    assert not [op for op, schema in schemas().items() if not schema.generated and not cases(op, "f32")]


def test_every_op_has_a_cpu_kernel():
    prebuilt = {op for op, schema in schemas().items() if not schema.generated}
    assert {v["op"] for v in VARIANTS if v["device"] == "cpu"} == prebuilt


@every_variant
def test_agrees_with_the_interpreter(kernel: str, op: str, device: str, pytestconfig: pytest.Config):
    """In a usual run on some 100 of many cases."""
    taken = _supported(kernel, op, device)
    assert len(taken) >= 4, f"{kernel} takes only {len(taken)} of the cases of {op}"
    if not pytestconfig.getoption("campaign"):
        taken = taken[:: 1 + len(taken) // 150]
    faults = [
        f"{case.label} ({case.inputs[0].dtype}): {why}"
        for case in taken
        if (why := judge(op, case, run(kernel, op, case, device)))
    ]
    assert not faults, f"{len(faults)} of {len(taken)} cases:\n" + "\n".join(faults[:20])


@every_variant
def test_runs_in_place_where_the_schema_allows(kernel: str, op: str, device: str):
    """Sharing memory changes no bit: one pair at a time, then as many together as fit."""
    for case in _supported(kernel, op, device):
        pairs = alias_pairs(op, case)
        if not pairs:
            continue
        apart = [result.tobytes() for result in run(kernel, op, case, device)]
        together = list({out: (out, index) for out, index in {i: (o, i) for o, i in pairs}.values()}.values())
        for aliases in (*([pair] for pair in pairs[:4]), together):
            shared = [result.tobytes() for result in run(kernel, op, case, device, aliases)]
            assert shared == apart, f"{case.label} ({case.inputs[0].dtype}) with {aliases}"


@every_variant
def test_gives_the_same_bits_again(kernel: str, op: str, device: str):
    for case in _supported(kernel, op, device)[::5]:
        first, second = (run(kernel, op, case, device) for _ in range(2))
        assert [a.tobytes() for a in first] == [b.tobytes() for b in second], case.label

"""The places that CONTRIBUTING.md lists for a new op are those where every op stands: none too few, none too many."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from kernel_cases import GENERATORS
from samples import NN_SAMPLES
from test_kernel_schemas import REFUSED
from xdsl.ir import Operation

from aicf_mlir import _C
from aicf_mlir.dialects import kernel, nn
from aicf_mlir.dialects.launches import launch_of
from aicf_mlir.interpreters import kernel as kernel_interpreter
from aicf_mlir.ir.interfaces import DecomposableInterface, DifferentiableInterface
from aicf_mlir.ir.registry import schemas
from aicf_mlir.passes.lower import RULES
from aicf_mlir.passes.lower.same import lower_as_it_stands

ROOT = Path(__file__).parents[2]
SAMPLED = {sample.op_type() for sample in NN_SAMPLES}
LAUNCHED = {launch.op_name for sample in NN_SAMPLES if (launch := sample.launch())}


def text(pattern: str) -> str:
    """All files of a pattern, one after the other."""
    return "\n".join(path.read_text() for path in sorted(ROOT.glob(pattern)))


FRONTEND, INTERPRETER = text("aicf_mlir/frontend/*.py"), text("aicf_mlir/interpreters/nn.py")
ELEMENTWISE = set(re.findall(r"X\(\d+, \w+, (\w+),", text("csrc/kernels/eltwise/ops.h")))
FAMILIES = {
    path.name: text(f"csrc/kernels/{path.name}/variants.cpp") for path in (ROOT / "csrc/kernels").iterdir()
}
LAUNCHERS = {family: text(f"csrc/kernels/{family}/launch.h") for family in FAMILIES}


def in_the_dialect(op: type[Operation]) -> bool:
    """Defined in a file of the folder, and handed on under its name."""
    return op.__module__.startswith("aicf_mlir.dialects.nn.") and getattr(nn, op.__name__, None) is op


def in_the_front_end(op: type[Operation]) -> bool:
    """Made by a row, unless it is made by others: a gradient, a check, a value known while tracing."""
    return bool(re.search(rf"\bnn\.{op.__name__}\b", FRONTEND)) or not issubclass(op, DifferentiableInterface)


def has_a_meaning(op: type[Operation]) -> bool:
    """Of its own where it is no launch as it stands, and only then."""
    return (f"    nn.{op.__name__}: " in INTERPRETER) == (launch_of(op) is None)


def is_lowered(op: type[Operation]) -> bool:
    """By rule, by a row that does something else, or taken apart; one of them."""
    if op not in RULES:
        return issubclass(op, DecomposableInterface)
    if launch_of(op) is None or RULES[op] is lower_as_it_stands:
        return True
    uses = (sample.build(*sample.block().args) for sample in NN_SAMPLES if sample.op_type() is op)
    return any(not lowers_as_by_rule(use) for use in uses)


def lowers_as_by_rule(op: Operation) -> bool:
    """Whether the row of an op makes what the rule would make."""
    rows = RULES[type(op)](op)
    return len(rows) == 1 and rows[0].is_structurally_equivalent(lower_as_it_stands(op)[0])


def families_of(op: str) -> list[str]:
    """The families whose variants.cpp has a schema of the op."""
    return [family for family, code in FAMILIES.items() if re.search(rf'"{op}",\s+"[^"]+', code)]


NN_PLACES: dict[str, Callable[[type[Operation]], bool]] = {
    "aicf_mlir/dialects/nn/": in_the_dialect,
    "aicf_mlir/frontend/aten_table.py": in_the_front_end,
    "aicf_mlir/interpreters/nn.py": has_a_meaning,
    "aicf_mlir/passes/lower/": is_lowered,
    "tests/py/samples/": lambda op: op in SAMPLED,
}
"""Whether an nn op stands at a place, or need not."""

KERNEL_PLACES: dict[str, Callable[[str], bool]] = {
    "aicf_mlir/interpreters/kernel.py": lambda op: op in kernel_interpreter.MEANINGS,
    "csrc/kernels/eltwise/ops.h": lambda op: (op in ELEMENTWISE) != bool(families_of(op)),
    "csrc/kernels/<family>/variants.cpp": lambda op: len(families_of(op)) == (op not in ELEMENTWISE),
    "csrc/kernels/<family>/launch.h": lambda op: all(
        any(f"_{device}" in LAUNCHERS[family] for family in families_of(op) or ["eltwise"])
        and any((row["op"], row["device"]) == (op, device) for row in _C.kernel_variants())
        for device in ("cpu", "cuda")
    ),
    "tests/py/kernel_cases/": lambda op: op in LAUNCHED | GENERATORS.keys(),
    "tests/py/test_kernel_schemas.py": lambda op: op in LAUNCHED | {row[0] for row in REFUSED},
}
"""The same of a kernel op."""


def test_the_list_is_that_of_the_places() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    sections = contributing[: contributing.index("## A faster kernel")]
    listed = re.findall(r"^(?:\d\.|-) `([^`]+)`", sections, re.MULTILINE)
    assert sorted(listed) == sorted([*NN_PLACES, *KERNEL_PLACES])


@pytest.mark.parametrize("place", NN_PLACES)
def test_every_nn_op_stands_there(place: str) -> None:
    assert not [op.name for op in nn.NN.operations if not NN_PLACES[place](op)]


@pytest.mark.parametrize("place", KERNEL_PLACES)
def test_every_kernel_op_stands_there(place: str) -> None:
    assert not [op for op in schemas() if not KERNEL_PLACES[place](op)]


def test_nothing_stands_there_that_is_no_op() -> None:
    assert kernel_interpreter.MEANINGS.keys() == schemas().keys() >= GENERATORS.keys()
    classes = {op.__name__ for op in nn.NN.operations}
    assert set(re.findall(r"^    nn\.(\w+): ", INTERPRETER, re.MULTILINE)) <= classes


def test_what_is_forgotten_or_superfluous_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that is not handed on and that no row makes; a row of lower for what the rule does."""
    stranger = type("StrangerOp", (nn.AddOp,), {"__module__": "aicf_mlir.dialects.nn.stranger"})
    assert not in_the_dialect(stranger)
    assert not in_the_front_end(stranger)
    monkeypatch.setitem(
        cast(Any, RULES), nn.MulOp, lambda op: [kernel.MulOp.launch(op.operands, op.result_types)]
    )
    assert not is_lowered(nn.MulOp)
    monkeypatch.setattr(nn.SubOp, "LAUNCH", "no_such_kernel")
    launch_of.cache_clear()
    assert not has_a_meaning(nn.SubOp)
    launch_of.cache_clear()

"""The places that CONTRIBUTING.md lists for a new op or optimizer are those where each stands: none too few, none too many."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from described_optimizers import OPTIMIZERS
from kernel_cases import GENERATORS
from refused_operands import REFUSED
from samples import NN_SAMPLES, OPTIM_SAMPLES
from samples.collectives import WRITTEN_BEFORE
from samples.pointwise import CASES as POINTWISE_CASES
from xdsl.ir import Operation

from aicf_mlir import _C, optimizers
from aicf_mlir.dialects import kernel, nn
from aicf_mlir.dialects.launches import launch_of
from aicf_mlir.dialects.nn import pointwise, reductions
from aicf_mlir.dialects.nn.rows import ROWS, Pointwise
from aicf_mlir.interpreters import kernel as kernel_interpreter
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.interfaces import DecomposableInterface, DifferentiableInterface
from aicf_mlir.ir.registry import schemas
from aicf_mlir.optimizers.adam import Adam
from aicf_mlir.optimizers.launched import LaunchedRule
from aicf_mlir.optimizers.pointwise import UpdateOp
from aicf_mlir.optimizers.rule import UpdateRule
from aicf_mlir.optimizers.sgd import Sgd
from aicf_mlir.passes.lower import RULES
from aicf_mlir.passes.lower.same import lower_as_it_stands

ROOT = Path(__file__).parents[3]
SAMPLED = {sample.op_type() for sample in NN_SAMPLES}
LAUNCHED = {launch.op_name for sample in NN_SAMPLES if (launch := sample.launch())}


def text(pattern: str) -> str:
    """All files of a pattern, one after the other."""
    return "\n".join(path.read_text() for path in sorted(ROOT.glob(pattern)))


MADE = {*pointwise.CLASSES.values(), *reductions.CLASSES.values()}
"""Op classes that are made of rows."""

FRONTEND, INTERPRETER = text("aicf_mlir/frontend/*.py"), text("aicf_mlir/interpreters/nn.py")
ELEMENTWISE = set(re.findall(r"X\(\d+, \w+, (\w+),", text("csrc/kernels/eltwise/ops.h")))
FAMILIES = {
    path.name: text(f"csrc/kernels/{path.name}/variants.cpp") for path in (ROOT / "csrc/kernels").iterdir()
}
LAUNCHERS = {family: text(f"csrc/kernels/{family}/launch.h") for family in FAMILIES}


def in_the_dialect(op: type[Operation]) -> bool:
    """Defined in a file of the folder, and handed on under its name, or made of the row of a table."""
    here = op.__module__.startswith("aicf_mlir.dialects.nn.")
    return here and (op in MADE or getattr(nn, op.__name__, None) is op)


MADE_BY_GRADIENTS = {nn.AtIndexOp, nn.ConvolutionWeightGradOp, nn.WindowProductOp, nn.WindowRouteOp}
"""Ops that only the gradients of others make, and that have gradients themselves."""
MADE_BY_FUNCTIONS: Mapping[type[Operation], str] = {
    nn.ScatterOp: r"nn\.replaced",
    nn.CumsumOp: r"nn\.running_sum",
    nn.UnfoldOp: "unfolded",
    nn.FoldOp: "folded",
}
"""Ops of short rows and of windows, and the function of the dialect that chooses them; the front end calls it."""


def in_the_front_end(op: type[Operation]) -> bool:
    """Made by a row, unless it is made by others: a gradient, a check, a value known while tracing."""
    row = f'"{op.name.removeprefix("nn.")}"'
    maker = MADE_BY_FUNCTIONS.get(op, rf"nn\.{op.__name__}")
    made = row in FRONTEND if op in MADE else re.search(rf"\b{maker}\b", FRONTEND)
    return bool(made) or op in MADE_BY_GRADIENTS or not issubclass(op, DifferentiableInterface)


def has_a_meaning(op: type[Operation]) -> bool:
    """Of its own where it is no launch as it stands and has no body, and only then."""
    return issubclass(op, GeneratedInterface) or (f"    nn.{op.__name__}: " in INTERPRETER) == (
        launch_of(op) is None
    )


def is_lowered(op: type[Operation]) -> bool:
    """By rule, by a row that does something else, taken apart, or written as others before; one of them."""
    if op not in RULES:
        return op in WRITTEN_BEFORE or issubclass(op, DecomposableInterface | GeneratedInterface)
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
    "tests/py/support/samples/": lambda op: op in SAMPLED or op in WRITTEN_BEFORE,
}
"""Whether an nn op stands at a place, or need not."""

ROW_PLACES: dict[str, Callable[[Pointwise], bool]] = {
    "aicf_mlir/dialects/nn/rows/": lambda row: (
        text("aicf_mlir/dialects/nn/rows/*.py").count(f'"{row.name}"') >= 1
    ),
    "aicf_mlir/frontend/aten_table.py": lambda row: f'"{row.name}"' in FRONTEND,
    "tests/py/support/samples/pointwise.py": lambda row: row.name in POINTWISE_CASES,
}
"""The same of a pointwise op."""


def is_launched(op: str, device: str) -> bool:
    """By a launcher of the family, and by a variant; of a generated kernel there is neither."""
    launcher = any(f"_{device}" in LAUNCHERS[family] for family in families_of(op) or ["eltwise"])
    return launcher and any((row["op"], row["device"]) == (op, device) for row in _C.kernel_variants())


KERNEL_PLACES: dict[str, Callable[[str], bool]] = {
    "aicf_mlir/interpreters/kernel.py": lambda op: op in kernel_interpreter.MEANINGS,
    "csrc/kernels/eltwise/ops.h": lambda op: (op in ELEMENTWISE) != bool(families_of(op)),
    "csrc/kernels/<family>/variants.cpp": lambda op: len(families_of(op)) == (op not in ELEMENTWISE),
    "csrc/kernels/<family>/launch.h": lambda op: all(
        is_launched(op, device) != schemas()[op].generated for device in ("cpu", "cuda")
    ),
    "tests/py/support/kernel_cases/<family>.py": lambda op: (
        (op in LAUNCHED | GENERATORS.keys()) != schemas()[op].generated
    ),
    "tests/py/support/refused_operands.py": lambda op: op in LAUNCHED | {row[0] for row in REFUSED},
}
"""The same of a kernel op."""


def in_a_file_of_its_own(rule: type[UpdateRule]) -> bool:
    """A rule, with its op where it has one, in a file that is called as the kind."""
    modules = {rule.__module__, *([rule.OP.__module__] if issubclass(rule, LaunchedRule) else [])}
    return modules == {f"aicf_mlir.optimizers.{rule.KIND}"}


def has_a_kernel(rule: type[UpdateRule]) -> bool:
    """Or needs none, being a formula."""
    return not issubclass(rule, LaunchedRule) or all(
        holds(rule.OP.LAUNCH) for holds in KERNEL_PLACES.values()
    )


def is_sampled(rule: type[UpdateRule]) -> bool:
    """Its op, or an update by its formulas."""
    if issubclass(rule, LaunchedRule):
        return rule.OP in {sample.op_type() for sample in OPTIM_SAMPLES}
    titles = {sample.name.partition("(")[0] for sample in OPTIM_SAMPLES if sample.op_type() is UpdateOp}
    return {row.title for row in rule.TORCH} <= titles


def is_described(rule: type[UpdateRule]) -> bool:
    """Every class of torch, and every flag on and off."""
    made = {name: make([torch.nn.Parameter(torch.zeros(1))]) for name, (make, _) in OPTIMIZERS.items()}
    rows = [expected for _, expected in OPTIMIZERS.values() if isinstance(expected, rule)]
    classes = {row.title for row in rule.TORCH} <= {type(optimizer).__name__ for optimizer in made.values()}
    values = {(row.name, getattr(expected, row.name)) for expected in rows for row in fields(rule)}
    return classes and len(values) == 2 * len(fields(rule))


OPTIMIZER_PLACES: dict[str, Callable[[type[UpdateRule]], bool]] = {
    "aicf_mlir/optimizers/<name>.py": in_a_file_of_its_own,
    "csrc/kernels/<family>/": has_a_kernel,
    "tests/py/support/models.py": is_sampled,
    "tests/py/support/samples/updates.py": is_sampled,
    "tests/py/support/described_optimizers.py": is_described,
}
"""The same of an optimizer."""

AN_OP = "## How do I add an op with a kernel of its own?"


def test_the_list_is_that_of_the_places() -> None:
    assert sorted(listed(AN_OP, "## How do I add a faster kernel?")) == sorted([*NN_PLACES, *KERNEL_PLACES])
    assert listed("## How do I add a pointwise op?", AN_OP) == list(ROW_PLACES)
    assert listed("## How do I add an optimizer?", "## How do I add a pass?") == list(OPTIMIZER_PLACES)


def listed(begin: str, end: str) -> list[str]:
    """The places in a part of CONTRIBUTING.md."""
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    part = contributing[contributing.index(begin) : contributing.index(end)]
    return re.findall(r"^(?:\d\.|-) `([^`]+)`", part, re.MULTILINE)


@pytest.mark.parametrize("place", NN_PLACES)
def test_every_nn_op_stands_there(place: str) -> None:
    assert not [op.name for op in nn.NN.operations if not NN_PLACES[place](op)]


@pytest.mark.parametrize("place", ROW_PLACES)
def test_every_pointwise_op_stands_there(place: str) -> None:
    assert not [row.name for row in ROWS.values() if not ROW_PLACES[place](row)]


@pytest.mark.parametrize("place", KERNEL_PLACES)
def test_every_kernel_op_stands_there(place: str) -> None:
    assert not [op for op in schemas() if not KERNEL_PLACES[place](op)]


@pytest.mark.parametrize("place", OPTIMIZER_PLACES)
def test_every_optimizer_stands_there(place: str) -> None:
    assert not [rule.KIND for rule in optimizers.RULES if not OPTIMIZER_PLACES[place](rule)]


def strings(tree: ast.AST) -> Iterator[str]:
    """The strings of a module, but for those that are statements: documentation."""
    documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
            yield node.value


HOMONYMS = {"alpha", "eps", "lambd", "momentum", "sum"}
"""Words that torch has for arguments of other functions too."""


@cache
def names_of_optimizers() -> set[str]:
    """Hyperparameters, states and flags."""
    states = {state for rule in optimizers.RULES for state in rule.complete().states}
    return {*optimizers.HOST_SCALARS, *optimizers.SWITCHES, *states} - HOMONYMS


def known_of_optimizers(module: str) -> set[str]:
    """The hyperparameters, states and flags that a module names, and the kinds that it tells apart."""
    names = names_of_optimizers()
    if not any(name in module for name in (*names, *(rule.__name__ for rule in optimizers.RULES))):
        return set()
    tree = ast.parse(module)
    classes = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    return (names & set(strings(tree))) | (classes & {rule.__name__ for rule in optimizers.RULES})


def test_no_other_module_knows_an_optimizer() -> None:
    package = ROOT / "aicf_mlir"
    own = [package / "optim" / "lion.py"]  # a class as torch's own are, which its rule describes
    own += [
        package / "runtime" / f"{name}.py" for name in ("description", "scheduler_states")
    ]  # of LR schedulers
    paths = [p for p in (ROOT / "aicf_mlir").rglob("*.py") if p.parent.name != "optimizers" and p not in own]
    found = {path.name: known_of_optimizers(path.read_text()) for path in paths}
    assert not {name: known for name, known in found.items() if known}


def test_what_names_a_hyperparameter_is_found() -> None:
    assert known_of_optimizers('def f(g):\n    "betas"\n    return g["lr"], g["x"]') == {"lr"}
    assert known_of_optimizers("from aicf_mlir.optimizers.adam import Adam") == {"Adam"}


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
    monkeypatch.setattr(nn.MseLossGradOp, "LAUNCH", "no_such_kernel")
    launch_of.cache_clear()
    assert not has_a_meaning(nn.MseLossGradOp)
    launch_of.cache_clear()


def module_with(monkeypatch: pytest.MonkeyPatch, name: str, **entries: Any) -> str:
    """A module of the folder that defines one more rule, like Sgd but for `entries`."""
    rule = type("Stranger", (Sgd,), {"__module__": name, **entries})
    monkeypatch.setitem(sys.modules, name, cast(Any, SimpleNamespace(Stranger=rule)))
    return name


def test_an_optimizer_of_another_name_and_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = ["aicf_mlir.optimizers.adam", "aicf_mlir.optimizers.sgd", "aicf_mlir.optimizers.rule"]
    assert optimizers.rules_of(modules) == (Sgd, Adam)
    copy_op = type("CopyOp", (), {"LAUNCH": "copy", "schema": lambda: schemas()["copy"]})
    stranger = module_with(monkeypatch, "aicf_mlir.optimizers.stranger", KIND="stranger", OP=copy_op)
    assert [rule.KIND for rule in optimizers.rules_of([*modules, stranger])] == ["stranger", "sgd", "adam"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "there are two optimizers of the kind 'sgd': aicf_mlir.optimizers.sgd, aicf_mlir.optimizers.x"),
        ({"KIND": "x"}, "there are two optimizers of the kernel 'sgd_step': "),
        (
            {"KIND": "x", "OP": type("XOp", (), {"LAUNCH": "x_step"})},
            "optimizers.x: there is no kernel 'x_step'; ",
        ),
    ],
)
def test_an_optimizer_that_cannot_be_is_refused(
    entries: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module_with(monkeypatch, "aicf_mlir.optimizers.x", **entries)
    with pytest.raises(ValueError, match=re.escape(message)):
        optimizers.rules_of(["aicf_mlir.optimizers.sgd", name])


def test_options_are_those_of_all_rules_in_an_order_that_each_has() -> None:
    for all_, each in (
        (optimizers.OPTIONS, lambda rule: rule.options()),
        (optimizers.SWITCHES, lambda rule: tuple(flag.key for flag in rule.FLAGS)),
    ):
        for rule in optimizers.RULES:
            assert tuple(name for name in all_ if name in each(rule)) == each(rule)
        assert set(all_) == {name for rule in optimizers.RULES for name in each(rule)}

"""The compiler's descriptions of optimizers, in one file each: `sgd.py`, `adam.py`, `rmsprop.py`.

A rule is found by its file being in this folder; no list names it. Rules are in the order of their kernels in the runtime, then
those that are formulas in the order of their names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules

from aicf_mlir.ir.registry import schemas
from aicf_mlir.optimizers.advance import AdvanceOp
from aicf_mlir.optimizers.launched import LaunchedRule
from aicf_mlir.optimizers.op import LaunchedOp, OptimOp
from aicf_mlir.optimizers.pointwise import ScalarsOp, UpdateOp
from aicf_mlir.optimizers.rule import TorchClass, UpdateRule
from aicf_mlir.optimizers.traced import TracedRule


def rules_of(modules: Iterable[str]) -> tuple[type[UpdateRule], ...]:
    """The rules that modules define, in the order of their kernels. Raises ValueError for two of a name, or of no kernel."""
    rules: list[type[UpdateRule]] = []
    for name in modules:
        for value in vars(import_module(name)).values():
            own = isinstance(value, type) and value.__module__ == name
            if own and issubclass(value, UpdateRule) and not isabstract(value):
                _check(value, rules)
                rules.append(value)
    return tuple(sorted(rules, key=_order))


def _order(rule: type[UpdateRule]) -> tuple[float, str]:
    return rule.launch().number if issubclass(rule, LaunchedRule) else math.inf, rule.KIND


def _launch(rule: type[UpdateRule]) -> str | None:
    return rule.OP.LAUNCH if issubclass(rule, LaunchedRule) else None


def _check(rule: type[UpdateRule], others: Iterable[type[UpdateRule]]) -> None:
    for other in others:
        both = f"{other.__module__}, {rule.__module__}"
        if other.KIND == rule.KIND:
            raise ValueError(f"there are two optimizers of the kind {rule.KIND!r}: {both}")
        if _launch(rule) is not None and _launch(other) == _launch(rule):
            raise ValueError(f"there are two optimizers of the kernel {_launch(rule)!r}: {both}")
    if issubclass(rule, LaunchedRule) and rule.OP.LAUNCH not in schemas():
        raise ValueError(
            f"{rule.__module__}: there is no kernel {rule.OP.LAUNCH!r}; declare it in csrc/kernels, then build"
        )


RULES = rules_of(f"{__name__}.{module.name}" for module in iter_modules(__path__) if module.name != "traced")

KINDS: dict[str, type[UpdateRule]] = {rule.KIND: rule for rule in (*RULES, TracedRule)}
"""The rules by the `kind` in `aicf.optimizer`."""

LAUNCHED = tuple(rule for rule in RULES if issubclass(rule, LaunchedRule))
"""The rules that the runtime has a kernel for."""

LAUNCHED_OPS: tuple[type[LaunchedOp], ...] = (AdvanceOp, *(rule.OP for rule in LAUNCHED))
"""The ops of the rules with a kernel."""

OPS: tuple[type[OptimOp], ...] = (*LAUNCHED_OPS, ScalarsOp, UpdateOp)
"""The optim dialect."""

UPDATES = {rule.OP.LAUNCH: rule for rule in LAUNCHED}
"""The rules by the name of the launch that updates the tensors."""

LAUNCHES = frozenset(op.LAUNCH for op in LAUNCHED_OPS)
"""Every launch of an optimizer that the runtime has a kernel of."""

HOST_SCALARS = frozenset(name for rule in RULES for name in rule.complete().host_scalars)
"""The hyperparameters of all, with pins and corrections."""

EXAMPLES = {name: value for rule in RULES for name, value in rule.examples().items()}
"""A value for each of them."""

COUNTERS = frozenset(name for rule in RULES for name in rule.complete().counters)
"""The counters: torch keeps a number for each parameter, and a step keeps a vector for each group."""

VECTORS = frozenset({*COUNTERS, *(name for rule in RULES for name in rule.complete().written_scalars)})
"""The slots with an element for each parameter of a group."""

CORRECTIONS = tuple(dict.fromkeys(row.name for rule in RULES for row in rule.CORRECTIONS))
"""The corrections that the host may pin and release."""

CLASSES: tuple[tuple[TorchClass, type[UpdateRule]], ...] = tuple(
    (torch_class, rule) for rule in RULES for torch_class in rule.TORCH
)
"""The classes of torch that can be compiled."""


def merged(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Each name of the rows once, before the names that it precedes in its own row."""
    names: list[str] = []
    for row in rows:
        place = len(names)
        for name in reversed(row):
            if name in names:
                place = names.index(name)
            else:
                names.insert(place, name)
    return tuple(names)


SWITCHES = merged([[flag.key for flag in rule.FLAGS] for rule in RULES])
"""Entries of a param group that are compiled in."""

OPTIONS = merged([rule.options() for rule in RULES])
"""The flags of all options that a class of torch leaves open."""

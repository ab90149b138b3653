"""The composites that torch keeps whole while it makes a program functional, prepared once and not for each program.

For each program torch searches all its namespaces for them and gives each of some five hundred ops twenty kernels in
place of its own. The search takes 70 ms of the processor, more than the rest of a small step's compilation. Here the kernels
of each are remembered as torch makes them, and are in place as long as torch would have them there. A composite whose
kernels have changed since is prepared again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch._export import utils
from torch._subclasses import fake_impls
from torch.export import exported_program as program

LOOK, REPLACE = "_materialize_cpp_cia_ops", "_override_composite_implicit_decomp"
"""The two torch functions that run for each program: find the composites, and replace their kernels."""

KEPT: Any = vars(utils)["_special_op_to_preserve_cia"]
"""The rule for a composite that stays whole."""

FAKE_RULES: dict[Any, Any] = vars(fake_impls)["op_implementations_dict"]

Kernels = dict[Any, Any]


class Ready(NamedTuple):
    """A composite with the kernels that keep it whole."""

    before: Kernels
    """The composite's kernels when these were made."""
    meanwhile: Kernels
    fake_rule: Any


_ready: dict[Any, Ready] = {}
_listed: list[str] = []


@contextmanager
def made_ready() -> Generator[None]:
    """Keep composites whole while programs are made functional; one thread at a time, as for all tracing."""
    global _listed
    look, replace = vars(utils)[LOOK], vars(program)[REPLACE]
    lists: Any = torch._C._dispatch_get_registrations_for_dispatch_key  # pyright: ignore[reportPrivateUsage]
    if (listed := lists("CompositeImplicitAutograd")) != _listed:
        look()
        _listed = listed
    setattr(utils, LOOK, lambda: None)
    setattr(program, REPLACE, partial(_replaced, replace))
    try:
        yield
    finally:
        setattr(utils, LOOK, look)
        setattr(program, REPLACE, replace)


@contextmanager
def _replaced(replace: Callable[[Mapping[Any, Any]], Any], rules: Mapping[Any, Any]) -> Generator[None]:
    """Act as torch's `replace`, for composites by their rules."""
    kept = [op for op, rule in rules.items() if rule is KEPT]
    fresh = [op for op in kept if op not in _ready or _ready[op].before != op.py_kernels]
    before = {op: op.py_kernels.copy() for op in fresh}
    with replace(dict.fromkeys(fresh, KEPT)):
        for op in fresh:
            _ready[op] = Ready(before[op], op.py_kernels.copy(), FAKE_RULES[op])
    with replace({op: rule for op, rule in rules.items() if rule is not KEPT}):
        try:
            for op in kept:
                _put(op, _ready[op].meanwhile)
                FAKE_RULES.setdefault(op, _ready[op].fake_rule)
            yield
        finally:
            for op in kept:
                _put(op, _ready[op].before)
                FAKE_RULES.pop(op, None)


def _put(op: Any, kernels: Kernels) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()

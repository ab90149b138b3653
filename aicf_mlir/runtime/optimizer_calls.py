"""A check that optimizers are still driven by the methods that they were compiled with: a compiled step calls none of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch

from aicf_mlir.errors import GuardError
from aicf_mlir.frontend.optimizer_verbs import VERBS, behind, verb_of
from aicf_mlir.frontend.reads import PARTS_OF_A_FUNCTION
from aicf_mlir.frontend.values import same
from aicf_mlir.runtime.watched import Watched


class OptimizerCalls:
    """The methods `step` and `zero_grad` of each optimizer: in the object, in its class, and their code."""

    def __init__(self, name: str, optimizers: Sequence[torch.optim.Optimizer]):
        self._name = name
        self._expected = [
            (optimizer, type(optimizer), vars(optimizer), {verb: _parts(optimizer, verb) for verb in VERBS})
            for optimizer in optimizers
        ]
        self.watched = Watched()
        reads = {read.place: read for optimizer in optimizers for read in behind(optimizer)}.values()
        self._behind = [(read, read.value()) for read in reads]
        functions: list[Any] = [read.owner for read in reads if read.kind == "code"]
        names: dict[int, tuple[dict[str, Any], list[str]]] = {}
        for read in reads:
            if read.kind == "item":
                names.setdefault(id(read.owner), (read.owner, []))[1].append(read.key)
        for owner, keys in names.values():
            self.watched.namespace(owner, keys, self._refuse)
        for optimizer, kind, own, _ in self._expected:
            self.watched.namespace(own, VERBS, self._refuse)
            for verb in VERBS:
                self.watched.class_attribute(kind, verb, self._refuse)
            functions += [verb_of(optimizer, verb) for verb in VERBS]
        self.watched.functions([f for f in functions if isinstance(f, FunctionType)], self._refuse)
        self.watched.instances(optimizers, self._refuse)

    def _refuse(self) -> None:
        for optimizer, kind, own, verbs in self._expected:
            title = kind.__name__
            if type(optimizer) is not kind:
                self._error(f"the optimizer's class was {title}, now {type(optimizer).__name__}")
            if vars(optimizer) is not own:
                self._error(f"the optimizer's __dict__ was exchanged ({title})")
            for verb, before in verbs.items():
                if any(now is not was for now, was in zip(_parts(optimizer, verb), before, strict=True)):
                    self._error(
                        f"{title}.{verb} is another method than the one that was compiled, and is not called"
                    )

        for read, before in self._behind:
            if not same(read.value(), before):
                self._error(f"{read.path}, which a step of torch calls, is not what was compiled")

    def _error(self, what: str) -> None:
        raise GuardError(
            f"{self._name}: {what}; put it back, or call recompile() to go on with what is there now"
        )


def _parts(optimizer: torch.optim.Optimizer, verb: str) -> list[Any]:
    """Return the code that runs, in the parts that may each be replaced."""
    function = verb_of(optimizer, verb)
    return [function, *(getattr(function, part, None) for part in PARTS_OF_A_FUNCTION)]

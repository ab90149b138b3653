"""`further_sizes`: batch sizes that were not named beforehand. A shape group is compiled when the first batch of its
size comes.

Groups that were compiled at first stay. A limited number of further ones is kept, and the least recently used makes
room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.frontend.structure import Batch, expect_one, shapes_of
from aicf_mlir.runtime.binding import Built, expect_same_tensors, literals_of
from aicf_mlir.runtime.bound_plan import HOST, BoundPlan
from aicf_mlir.step.options.option import Effect

if TYPE_CHECKING:
    from aicf_mlir.step.request import Request


@dataclass(frozen=True)
class FurtherSizes(Effect):
    """The most plans for further sizes."""

    most: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        most: object = given["further_sizes"]
        if type(most) is not int or most < 0:
            raise BindError(f"further_sizes needs a whole number of at least 0, got {most!r}")
        return cls(most)


class RecentPlans:
    """The order in which plans of a step were last used; it determines the plan that makes room."""

    def __init__(self, most: int, first: int):
        """Keep at most `most` plans besides the `first` ones."""
        self.most = most
        self._first = first
        self._used: list[int] = []
        """The numbers of the further plans, the most recently used last."""

    def use(self, index: int) -> None:
        """Note that the plan with this number is used now."""
        if index >= self._first:
            if index in self._used:
                self._used.remove(index)
            self._used.append(index)

    def next_index(self, count: int) -> int:
        """Return the number that one more plan gets, of `count` existing ones: a new one, or that of the least recently
        used.
        """
        return count if count < self._first + self.most else self._used[0]


def is_further(plan: BoundPlan, entries: Mapping[str, Any]) -> bool:
    """True if a batch differs from that of `plan` in the sizes of leading dimensions alone, and is not empty."""
    if entries.keys() != plan.inputs.keys():
        return False
    for name, expected in plan.inputs.items():
        tensor = entries[name]
        if not isinstance(tensor, torch.Tensor) or not tensor.numel() or tensor.dim() != expected.dim():
            return False
        if (tensor.shape[1:], tensor.dtype) != (expected.shape[1:], expected.dtype):
            return False
        if tensor.device not in (expected.device, HOST):
            return False
    return True


def with_further(request: Request, built: Built, batch: Batch, index: int) -> tuple[Request, Built]:
    """Return the step with a shape group for `batch` at `index`, over the same memory. An error leaves everything
    unchanged.
    """
    group = (shapes_of(batch), None)
    (traced,) = request.trace(built.host_values, [group])
    expect_one([built.traces[0].structure, traced.structure])
    module = traced.module.clone()
    literals = literals_of(traced, module)
    expect_same_tensors(built.traces[0], traced, literals)
    with request.explained():
        stages = request.lower(traced, built.store.device)
        plan = BoundPlan(request.load(stages), built.store, index, literals)

    def put(members: list[Any], member: Any) -> list[Any]:
        return [*members[:index], member, *members[index + 1 :]]

    return replace(request, groups=tuple(put(list(request.shape_groups), group))), replace(
        built,
        traces=put(built.traces, traced),
        traced_modules=put(built.traced_modules, module),
        stages=put(built.stages, stages),
        plans=put(built.plans, plan),
    )

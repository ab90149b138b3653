"""A step of torch in float64 on the host, by the code of a model in any type on any device.

While the user's code runs, each tensor that reaches torch is replaced by a copy in float64 on the host, always the same one for
the same tensor. Types and devices that the code names are replaced too. The model, its optimizer and their memory stay unchanged.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode

from aicf_mlir.frontend.precision import Precision
from aicf_mlir.runtime.eager_steps import AFTER
from aicf_mlir.step.eager.live import Live
from aicf_mlir.step.eager.torch_step import Results, TrainingLoop
from aicf_mlir.step.options.loss_scaling import LossScaling

HOST = torch.device("cpu")
NARROWING = ("float", "half", "bfloat16")
"""Methods that convert to a type that has no argument for it."""


class InDouble(TorchFunctionMode):
    """A mode in which torch sees stand-ins."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """The tensor, kept to preserve its id, and its stand-in, by the tensor's id."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the stand-in of a tensor: itself, if it is in float64 or whole numbers, on the host, and no parameter."""
        if (found := self._made.get(id(tensor))) is not None:
            return found[1]
        if tensor.grad_fn is not None or not (tensor.requires_grad or self._differs(tensor)):
            return tensor if not self._differs(tensor) else tensor.to(HOST, torch.float64)
        made = tensor.detach().to(HOST, torch.float64 if tensor.is_floating_point() else None, copy=True)
        self._put(tensor, made.requires_grad_(tensor.requires_grad))
        self._put(made, made)
        return made

    def _put(self, tensor: torch.Tensor, made: torch.Tensor) -> None:
        self._made[id(tensor)] = (tensor, made)

    @staticmethod
    def _differs(tensor: torch.Tensor) -> bool:
        wide = torch.float64 if tensor.is_floating_point() else tensor.dtype
        return tensor.dtype != wide or tensor.device != HOST

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in NARROWING:
            return func if not args else torch.Tensor.double(self._replaced(args[0]))
        given = {key: self._replaced(value) for key, value in (kwargs or {}).items()}
        return self._wide(func(*(self._replaced(each) for each in args), **given))

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.of(value)
        if isinstance(value, torch.dtype):
            return torch.float64 if value.is_floating_point else value
        if isinstance(value, torch.device) or (isinstance(value, str) and value.partition(":")[0] == "cuda"):
            return HOST
        if type(value) in (list, tuple):
            return type(value)(self._replaced(each) for each in value)
        if type(value) is dict:
            return {key: self._replaced(each) for key, each in cast(dict[Any, Any], value).items()}
        return value

    def _wide(self, value: Any) -> Any:
        """Return a result in float64: `torch.rand` and other makers take the default type."""
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64:
            return value.double()
        return value


def in_double(live: Live, loop: TrainingLoop, is_skipped: bool) -> tuple[Live, Callable[[Any], Results]]:
    """Return the objects of a step in float64, and the step on them. With `is_skipped`, for an overflow in another
    type, it has no update.

    Loss scaling is left out: nothing overflows here.
    """
    mode = InDouble()

    def named(tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {name: mode.of(tensor) for name, tensor in tensors.items()}

    optimizers = [_optimizer_of(mode, optimizer) for optimizer in live.optimizers]
    buffers = {name: tensor for name, tensor in live.buffers.items() if name not in live.trained}
    wide = replace(
        live,
        modules={},
        trained=named(live.trained),
        others=named({**buffers, **live.others}),
        optimizers=optimizers,
    )
    step = replace(loop, live=wide, precision=Precision(), scaling=LossScaling(), own=named(loop.own))

    def run(batch: Any) -> Results:
        for parameter in wide.trained.values():
            parameter.grad = None
        with mode:
            return step.forward_and_backward(batch)

    def whole(batch: Any) -> Results:
        results = run(batch)
        if optimizers and not is_skipped:
            step.update()
        return results

    return wide, whole


def _optimizer_of(mode: InDouble, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the same optimizer over stand-ins, without its hooks and the wrappers of a scheduler or a compiled step
    around its `step`.
    """
    made: Any = object.__new__(type(optimizer))
    for key, value in vars(optimizer).items():
        if key not in ("step", AFTER):
            setattr(made, key, OrderedDict[int, Any]() if key.endswith("_hooks") else value)

    def wide(value: Any) -> Any:
        return mode.of(value) if isinstance(value, torch.Tensor) else value

    made.param_groups = [
        {key: [mode.of(p) for p in value] if key == "params" else wide(value) for key, value in group.items()}
        for group in optimizer.param_groups
    ]
    made.state = defaultdict[torch.Tensor, dict[str, Any]](dict)
    for parameter, entries in optimizer.state.items():
        made.state[mode.of(parameter)] = {key: wide(value) for key, value in entries.items()}
    return made

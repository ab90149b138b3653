"""The gradients of a loop body while it is traced: `p.grad` is a table, and `loss.backward()` an op that fills it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from aicf_mlir.frontend import source
from aicf_mlir.frontend.autograd_graph import leaves_of
from aicf_mlir.frontend.foreach import FOREACH, one_by_one
from aicf_mlir.frontend.loop_body.markers import BACKWARD, LEFT, UPDATE, WRITTEN
from aicf_mlir.frontend.loop_body.replaced_data import ReplacedData
from aicf_mlir.frontend.recorder import Recorder, function_name, memory_of, tensors
from aicf_mlir.frontend.source import is_users_file, quoted, trace_error
from aicf_mlir.ir.locations import SourceLocation

REFUSED = {
    "gradient": "a gradient of its own",
    "inputs": "inputs=…",
    "create_graph": "create_graph=True",
}
"""Arguments of `backward` by name: what a body cannot ask for."""


SHOWN = ("__repr__", "__format__")
"""What makes text of a tensor."""

DISPATCH = ("torch/_tensor.py", "torch/overrides.py")
"""Where torch hands a method of a tensor on."""


class GradientRecorder(Recorder):
    """A recorder that knows the verbs of a loop body on tensors.

    Parameters that the code holds on to are the tracer's own, wherever they come from; each has a gradient in a table.
    """

    writes_parameters = True

    def __init__(self, left: Mapping[torch.Tensor, bool]):
        """`left` says of each parameter of the user's whether a call may find a gradient that another has left."""
        super().__init__()
        self._left = left
        self._twins: dict[int, torch.Tensor] = {}
        self._may_be_left: dict[int, bool] = {}
        self._gradients: dict[int, torch.Tensor | None] = {}
        self._zeroed: dict[int, int] = {}
        """By id of a gradient: the version of it that is zero."""
        self.parameters: list[torch.Tensor] = []
        """The user's, by the numbers that writes to them have in the graph."""
        self._replaced = ReplacedData([])
        self._numbers: dict[object, int] = {}
        self.loss: torch.Tensor | None = None
        """Of the last `backward()`."""

    def begin(
        self, twins: Sequence[tuple[torch.Tensor, torch.Tensor]], given: Sequence[torch.Tensor]
    ) -> None:
        """Trace with these parameters, pairs of the user's and the tracer's, and with what else is `given` to a call."""
        self._twins = {id(own): traced for own, traced in twins}
        self.parameters = [own for own, _ in twins]
        self._numbers = {memory_of(traced): number for number, (_, traced) in enumerate(twins)}
        self._replaced = ReplacedData([*(traced for _, traced in twins), *given])
        self._may_be_left = {id(traced): self._left.get(own, False) for own, traced in twins}
        self._requires = [(traced, traced.requires_grad) for _, traced in twins]
        self._gradients = {}
        self._given: set[int] = set()
        """The parameters that were given a gradient."""
        self.asked_left: set[int] = set()
        """The parameters of the user's of whose gradient the body asks for what an earlier call has left."""
        self._own = {id(traced): id(own) for own, traced in twins}
        self.loss = None

    def end(self, where: SourceLocation | None) -> None:
        """Raise TraceError where a next call would find another model than this one did."""
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            self._replaced.expect_apart(self._replaced.tensors, where)
        for traced, before in self._requires:
            if traced.requires_grad != before:
                raise trace_error(
                    "the loop body leaves requires_grad of a parameter other than it found it; set it back before it ends",
                    where,
                )

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tracer's tensor in the place of the user's."""
        return self._twins.get(id(tensor), tensor)

    def never_left(self, own: torch.Tensor) -> bool:
        """Whether no call leaves a gradient of a parameter of the user's: it ends with none or zeros, or never got one."""
        traced = id(self._twins[id(own)])
        if traced not in self._given:
            return own.grad is None or self._gradients.get(traced, own) is None
        gradient = self._gradients[traced]
        return gradient is None or self._zeroed.get(id(gradient)) == gradient._version

    def gradient(self, traced: torch.Tensor) -> torch.Tensor | None:
        """`p.grad`."""
        key = id(traced)
        if key not in self._gradients and self._may_be_left.get(key, False):
            self.asked_left.add(self._own[key])
            with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
                self._gradients[key] = source.call_at(source.here(), LEFT, traced)
        return self._gradients.get(key)

    def set_gradient(self, traced: torch.Tensor, value: torch.Tensor | None) -> None:
        """`p.grad = value`."""
        self._gradients[id(traced)] = value
        self._given.add(id(traced))

    def zero(self, traced: torch.Tensor, to_none: bool) -> None:
        """What `zero_grad` does to one parameter."""
        if to_none:
            self._gradients[id(traced)] = None
        elif (gradient := self.gradient(traced)) is not None:
            with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
                source.call_at(source.here(), torch.Tensor.zero_, gradient)
            self._zeroed[id(gradient)] = gradient._version

    def update(self, params: Sequence[torch.Tensor]) -> bool:
        """Step the optimizer of the user's parameters; whether any of them has a gradient."""
        traced = [self.twin(param) for param in params]
        with_gradient = [param for param in traced if self.gradient(param) is not None]
        if not with_gradient:
            return False
        location = source.here()
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            gradients = [self.gradient(param) for param in with_gradient]
            updated = source.call_at(location, UPDATE, with_gradient, gradients)
            for param, value in zip(with_gradient, updated, strict=True):
                source.call_at(location, torch.Tensor.copy_, param.detach(), value)
        return True

    def seen(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """As of every step; gradients of parameters are those of the trace."""
        args = self._traced(tuple(args))
        named: dict[str, Any] = self._traced(dict(kwargs))
        name = function_name(func)
        if name.startswith(FOREACH) and (each := one_by_one(name, func)) is not func:
            with self:
                return each(*args, **named)
        self._replaced.expect_apart(tensors((args, named)), None)
        if name == "data":
            return self._data(*args)
        of_parameter = bool(args) and id(args[0]) in self._may_be_left
        if name == "grad" and of_parameter:
            if getattr(func, "__name__", "") == "__get__":
                return self.gradient(args[0])
            if getattr(func, "__name__", "") == "__set__":
                self.set_gradient(args[0], args[1])
                return None
        if name == "backward":
            self._backward(args, named)
            return None
        if name in SHOWN and _asked_by_user():
            location = source.here()
            raise trace_error(
                f"the loop body prints a tensor{quoted(location)}, which has no value while it is traced; return it",
                location,
            )
        if name.startswith("requires_grad") and of_parameter:
            return func(*args, **named)
        result = super().seen(func, args, named)
        if name == "zero_" and any(args[0] is gradient for gradient in self._gradients.values()):
            self._zeroed[id(args[0])] = args[0]._version
        return result

    def written_to(self, operand: torch.Tensor, how: str, location: SourceLocation | None) -> None:
        """A write to a parameter, to all of it or a part, is its new value, which gradients end at as at the one before."""
        if (number := self._numbers.get(memory_of(operand))) is None:
            super().written_to(operand, how, location)
        traced = self._twins[id(self.parameters[number])]
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            value = source.call_at(location, WRITTEN, traced, number)
            source.call_at(location, torch.Tensor.copy_, traced.detach(), value)

    def _data(self, tensor: torch.Tensor, *value: torch.Tensor) -> torch.Tensor | None:
        """`tensor.data`, or `tensor.data = value`: its new value, where both stay apart."""
        if not value:
            return super().seen(torch.Tensor.detach, (tensor,), {})
        location = source.here()
        self._replaced.expect_like(tensor, value[0], location)
        super().seen(torch.Tensor.copy_, (super().seen(torch.Tensor.detach, (tensor,), {}), value[0]), {})
        self._replaced.add(tensor, value[0])
        return None

    def _backward(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        location, loss = source.here(), cast(torch.Tensor, args[0])
        given = {
            **dict(zip(("gradient", "retain_graph", "create_graph", "inputs"), args[1:], strict=False)),
            **kwargs,
        }
        for key, what in REFUSED.items():
            if given.get(key):
                raise trace_error(
                    f"the loop body calls backward with {what}{quoted(location)}, which is not supported",
                    location,
                )
        if loss.dim() or not loss.is_floating_point():
            raise trace_error(
                f"backward() needs a 0-d loss of floating-point numbers{quoted(location)}; reduce it with .mean() or .sum()",
                location,
            )
        self.functions.expect_known(loss)
        wrt = self._reached(loss)
        if not wrt:
            raise trace_error(f"the loss depends on no parameter{quoted(location)}", location)
        self.loss = loss
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            gradients = source.call_at(location, BACKWARD, loss, wrt)
            self._given.update(map(id, wrt))
            for param, gradient in zip(wrt, gradients, strict=True):
                if (before := self.gradient(param)) is None:
                    self._gradients[id(param)] = gradient
                else:
                    source.call_at(location, torch.Tensor.add_, before, gradient)

    def _reached(self, loss: torch.Tensor) -> list[torch.Tensor]:
        """The parameters that torch would accumulate a gradient in, in their order."""
        found = set(map(id, leaves_of(loss)))
        return [traced for traced in self._twins.values() if id(traced) in found]

    def _traced(self, tree: Any) -> Any:
        """Nested tuples, lists and dictionaries with the tracer's parameters in the place of the user's."""
        if isinstance(tree, torch.Tensor):
            return self.twin(tree)
        if type(tree) in (tuple, list):
            return type(tree)(map(self._traced, tree))
        if type(tree) is dict:
            return {key: self._traced(value) for key, value in cast(dict[Any, Any], tree).items()}
        return tree


def _asked_by_user() -> bool:
    """Whether the user's code calls what is running, behind torch's dispatch of it."""
    frame = sys._getframe(3)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.endswith(DISPATCH):
        frame = frame.f_back
    return is_users_file(frame.f_code.co_filename)

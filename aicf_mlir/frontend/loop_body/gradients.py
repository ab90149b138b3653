"""The gradients of a loop body while it is traced: `p.grad` is a table, and `loss.backward()` an op that fills it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Mapping, Sequence
from types import CodeType
from typing import Any

import torch
from torch.utils._pytree import tree_map  # pyright: ignore[reportUnknownVariableType]

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.autograd_graph import leaves_of
from aicf_mlir.frontend.batched import all_rows
from aicf_mlir.frontend.foreach import FOREACH, one_by_one
from aicf_mlir.frontend.inner_gradients import as_list
from aicf_mlir.frontend.loop_body.called import OF_BACKWARD, OF_FUNCTION, writes_in_place
from aicf_mlir.frontend.loop_body.converted import CONVERSIONS, CONVERTED, is_returned, users_frame
from aicf_mlir.frontend.loop_body.numbers import READ, Book, Number, ReadTensor, expect_tensors, with_tensors
from aicf_mlir.frontend.markers import BACKWARD, LEFT, UPDATE, WRITTEN
from aicf_mlir.frontend.recorder import Recorder, function_name, is_users, tensors
from aicf_mlir.frontend.replaced_data import ReplacedData, is_same_view, memory_of
from aicf_mlir.frontend.source import is_users_file, quoted, trace_error
from aicf_mlir.ir.locations import SourceLocation

SHOWN = ("__repr__", "__format__")
"""Methods that make text of a tensor."""

DISPATCH = ("torch/_tensor.py", "torch/overrides.py", "loop_body/shown.py", "frontend/reads.py")
"""Files in which torch dispatches a method of a tensor, and in which a function that shows it is called."""


Twin = tuple[torch.Tensor, torch.Tensor]
"""A tensor of the user's, and the tracer's tensor that replaces it."""


class WritesState(TraceError):
    """The body writes to a tensor outside of modules."""

    def __init__(self, tensor: torch.Tensor):
        location = source.here()
        super().__init__(
            f"the loop body writes to a tensor that no module has{quoted(location)}; call recompile(), or register it with"
            " register_buffer"
        )
        self.tensor = tensor


class GradientRecorder(Recorder):
    """A recorder that knows the verbs of a loop body on tensors.

    Parameters that the code uses are the tracer's own, from any source; each has a gradient in a table.
    """

    writes_parameters = True

    def __init__(self, left: Mapping[torch.Tensor, bool], book: Book):
        """Take `left`: True for each user's parameter if a call may find a gradient that another has left."""
        super().__init__()
        self._left = left
        self._may_be_left: dict[int, bool] = {}
        self._gradients: dict[int, torch.Tensor | None] = {}
        self._zeroed: dict[int, int] = {}
        """The version in which a gradient is zero, by its id."""
        self.parameters: list[torch.Tensor] = []
        """The user's parameters, by the numbers that writes to them have in the graph."""
        self.read: list[ReadTensor] = []
        """The tensors that the body has read numbers from."""
        self._read_at: dict[int, SourceLocation | None] = {}
        """The line where each was read, for tensors that nothing has been computed with yet."""
        self.book = book
        self.taken: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
        """The steps of optimizers that may be left out: true if one is taken, and the user's parameters."""
        self.body_code: CodeType | None = None
        """The code of the body."""
        self.converted: dict[int, tuple[Any, Number]] = {}
        """The numbers of `float(tensor)` by the ids of the Python numbers that stand for them."""
        self._numbers: dict[object, int] = {}
        self.loss: torch.Tensor | None = None
        """The loss of the last `backward()`; of the last `autograd.grad()` if there is none."""
        self._has_backward = False

    def begin(self, twins: Sequence[Twin], states: Sequence[Twin], given: Sequence[torch.Tensor]) -> None:
        """Trace with these parameters, the tensors that the body writes to, and the other tensors `given` to a call."""
        self.book.begin()
        self.twins = {id(own): traced for own, traced in (*twins, *states)}
        self.parameters = [own for own, _ in twins]
        self.made_leaves = [traced for _, traced in twins]
        """Parameters, and tensors that the body has made leaves; each has its number."""
        self._numbers = {memory_of(traced): number for number, traced in enumerate(self.made_leaves)}
        self.replaced = ReplacedData([*(traced for _, traced in twins), *given])
        self._may_be_left = {id(traced): self._left.get(own, False) for own, traced in twins}
        self._requires = [(traced, traced.requires_grad) for _, traced in twins]
        self.frozen_now.clear()
        self.frozen_now |= {id(own) for own, traced in twins if not traced.requires_grad}
        self._gradients = {}
        self._given: set[int] = set()
        """The parameters that were given a gradient."""
        self.frozen: dict[torch.Tensor, bool] = {}
        """`requires_grad` of the user's parameters that the body leaves with another one than it found."""
        self.asked_left: set[int] = set()
        """The user's parameters whose gradient the body reads as an earlier call left it."""
        self._own = {id(traced): id(own) for own, traced in twins}
        self.loss = None

    def end(self, where: SourceLocation | None) -> None:
        """Raise TraceError if a next call would find another model, or for an error that a library has caught."""
        if self.book.refused:
            raise self.book.refused[0]
        self.expect_apart(where)
        found = zip(self.parameters, self._requires, strict=True)
        self.frozen = {own: now.requires_grad for own, (now, was) in found if now.requires_grad != was}

    def with_shared_memory(self, value: Any) -> Any:
        """Return what Python keeps after the step, with the tensors that have got the memory of the kept ones."""
        return tree_map(self.replaced.instead, value) if self.replaced.tensors else value

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tracer's tensor that replaces the user's."""
        return self.twins.get(id(tensor), tensor)

    def never_left(self, own: torch.Tensor) -> bool:
        """True if no call leaves a gradient of a user's parameter: it ends with none or zeros, or never got one."""
        traced = id(self.twins[id(own)])
        if traced not in self._given:
            return own.grad is None or self._gradients.get(traced, own) is None
        gradient = self._gradients[traced]
        return gradient is None or self._zeroed.get(id(gradient)) == gradient._version

    def gradient(self, traced: torch.Tensor) -> torch.Tensor | None:
        """Return `p.grad`."""
        key = id(traced)
        if key not in self._gradients and self._may_be_left.get(key, False):
            self.asked_left.add(self._own[key])
            with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
                self._gradients[key] = source.call_at(source.here(), LEFT, traced)
        return self._gradients.get(key)

    def set_gradient(self, traced: torch.Tensor, value: torch.Tensor | None) -> None:
        """Do `p.grad = value`."""
        self._gradients[id(traced)] = value
        self._given.add(id(traced))

    def zero(self, traced: torch.Tensor, to_none: bool) -> None:
        """Do to one parameter the work of `zero_grad`."""
        if to_none:
            self._gradients[id(traced)] = None
        elif (gradient := self.gradient(traced)) is not None:
            with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
                source.call_at(source.here(), torch.Tensor.zero_, gradient)
            self._zeroed[id(gradient)] = gradient._version

    def update(self, params: Sequence[torch.Tensor], taken: torch.Tensor | None = None) -> bool:
        """Step the optimizer of the user's parameters, if `taken`; return True if any of them has a gradient."""
        traced = [self.twin(param) for param in params]
        with_gradient = [param for param in traced if self.gradient(param) is not None]
        if not with_gradient:
            return False
        location = source.here()
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            gradients = [self.gradient(param) for param in with_gradient]
            updated = source.call_at(location, UPDATE, with_gradient, gradients, taken)
            for param, value in zip(with_gradient, updated, strict=True):
                source.call_at(location, torch.Tensor.copy_, param.detach(), value)
        if taken is not None:
            self.taken.append(
                (taken, [param for param in params if self.gradient(self.twin(param)) is not None])
            )
        return True

    def seen(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Handle a call as in every step; gradients of parameters are the trace's."""
        expect_tensors(function_name(func), args, kwargs)
        given = args[0] if args else None
        args, kwargs = with_tensors(tuple(args)), with_tensors(dict(kwargs))
        args = self.traced(args)
        named: dict[str, Any] = self.traced(kwargs)
        name = function_name(func)
        if name.startswith(FOREACH) and (each := one_by_one(name, func)) is not func:
            with self:
                return each(*args, **named)
        if writes_in_place(name) and args and isinstance(args[0], torch.Tensor) and is_users(args[0]):
            raise WritesState(args[0])
        self.replaced.expect_apart(tensors((args, named)), None)
        of_leaf = bool(args) and any(args[0] is leaf for leaf in self.made_leaves)
        if name == "grad" and of_leaf:
            if getattr(func, "__name__", "") == "__get__":
                return self.gradient(args[0])
            if getattr(func, "__name__", "") == "__set__":
                self.set_gradient(args[0], args[1])
                return None
        if name in CONVERTED and args:
            return self._converted(args[0], name)
        if name in READ and args:
            return self._number(args[0], name)
        if func is torch.autograd.backward:
            return self._backward(**dict(zip(OF_FUNCTION, args, strict=False)) | named)
        if name == "backward":
            given = dict(zip(OF_BACKWARD, args[1:], strict=False)) | named
            return self._backward(args[0], given.pop("gradient", None), **given)
        if (
            name == "__format__"
            and len(args) == 2
            and type(args[0]) is not torch.nn.Parameter
            and not args[0].dim()
        ):
            return self._number(args[0], "item").written(args[1])
        if name in SHOWN and _asked_by_user():
            location = source.here()
            raise trace_error(
                f"the loop body prints a tensor{quoted(location)}, which has no value while it is traced; return it",
                location,
            )
        if name.startswith("requires_grad") and of_leaf:
            result = func(*args, **named)
            if getattr(func, "__name__", "") != "__get__" and (own := self._own.get(id(args[0]))):
                required = args[0].requires_grad
                (self.frozen_now.discard if required else self.frozen_now.add)(own)
                self.freed |= {own} if required else set()
            return result
        result = super().seen(func, args, named)
        if name == "zero_" and any(args[0] is gradient for gradient in self._gradients.values()):
            self._zeroed[id(args[0])] = args[0]._version
        changed = result is not None and result is self.twins.get(id(given))
        return given if changed else result  # so `state.total += x` leaves the tensor that was there

    def written_to(self, operand: torch.Tensor, how: str, location: SourceLocation | None) -> None:
        """Handle a write to a parameter or a part of it: its new value, at which gradients end as at the old one."""
        number = self._numbers.get(memory_of(operand))
        if number is None:
            return super().written_to(operand, how, location)
        traced = self.made_leaves[number]
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            value = source.call_at(location, WRITTEN, traced, number)
            source.call_at(location, torch.Tensor.copy_, traced.detach(), value)
        return None

    def _number(self, tensor: torch.Tensor, how: str) -> Number:
        """Handle `tensor.item()`: a number that is known after the step."""
        place, location = len(self.read), source.here()
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            copy = source.call_at(location, torch.clone, tensor.detach())
        self.read.append(read := ReadTensor(tensor, tensor._version, copy, READ[how]))
        self._read_at[place] = location

        def used() -> torch.Tensor:
            self._read_at.pop(place, None)
            return read.value

        return Number(None, (place,), self.book, used)

    def _converted(self, tensor: torch.Tensor, name: str) -> Any:
        """Handle `float(tensor)`, which Python makes a float of: one that the body returns at once has its place in it."""
        location, frame = source.here(), users_frame(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        if (
            frame is None
            or frame.f_code is not self.body_code
            or not is_returned(frame.f_code, frame.f_lasti)
        ):
            raise trace_error(
                f"the loop body reads the value of a tensor by {name.strip('_')}(){quoted(location)} and computes with it or"
                " keeps it; write .item(), which it may return and compute with",
                location,
            )
        number = self._number(tensor, "item")
        stand_in = CONVERTED[name](len(self.converted))
        self.converted[id(stand_in)] = (
            stand_in,
            Number(CONVERSIONS[name], (number,), self.book),
        )
        return stand_in

    def number_of(self, now: Callable[..., Any], *parts: Any, alive: str) -> Number:
        """Return the number that `now(*parts)` gives after the step; `alive` is the reason why it cannot enter tensors."""
        return Number(now, parts, self.book, alive=alive)

    def unreturned(self, places: Container[int]) -> Exception | None:
        """Return the error for a number that the body has read, and neither gives away, `places`, nor computes with."""
        for place, location in self._read_at.items():
            if place not in places:
                return trace_error(
                    f"the loop body reads the value of a tensor{quoted(location)} and neither returns, prints nor keeps it; what"
                    " it does with it would happen once, while it is traced: return it, or leave the line out",
                    location,
                )
        return None

    def data_replaced(
        self, tensor: torch.Tensor, value: torch.Tensor, location: SourceLocation | None
    ) -> None:
        """Handle `tensor.data = value`: it becomes the new value, if both stay apart."""
        if not is_same_view(tensor, value):
            self.replace_data(tensor, value, location)

    def new_leaf(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a leaf with the value of a tensor, and a number for writes to it."""
        leaf = super().new_leaf(tensor)
        self._numbers[memory_of(leaf)] = len(self.made_leaves) - 1
        return leaf

    def _backward(
        self,
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        grad_variables: Any = None,
        inputs: Any = None,
    ) -> None:
        """Handle `tensors.backward(…)`: the gradients of leaves grow."""
        del grad_variables
        location, outputs = source.here(), as_list(tensors)
        loss = self._loss(outputs, as_list(grad_tensors), location)
        found = set(map(id, leaves_of(loss)))
        wrt = [leaf for leaf in self.made_leaves if id(leaf) in found]
        if inputs is not None:
            asked = as_list(inputs)
            if not all(any(each is leaf for leaf in self.made_leaves) for each in asked):
                raise trace_error(
                    f"the loop body calls backward with inputs=… that are no leaves{quoted(location)}; use torch.autograd.grad",
                    location,
                )
            wrt = [leaf for leaf in wrt if any(leaf is each for each in asked)]
        if not wrt:
            raise trace_error(f"the loss depends on no parameter{quoted(location)}", location)
        self.loss, self._has_backward = loss, True
        self.functions.checkpoints.call_again(loss)
        gradients: Sequence[torch.Tensor | None] = ()
        if create_graph:
            gradients = super().gradient_of(outputs, wrt, grad_tensors, retain_graph, create_graph=True)
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            if not create_graph:
                gradients = source.call_at(location, BACKWARD, loss, wrt, bool(retain_graph))
            self._given.update(map(id, wrt))
            for param, gradient in zip(wrt, gradients, strict=True):
                if (before := self.gradient(param)) is None:
                    self._gradients[id(param)] = gradient
                elif create_graph:
                    self._gradients[id(param)] = source.call_at(location, torch.add, before, gradient)
                else:
                    source.call_at(location, torch.Tensor.add_, before, gradient)

    def gradient_of(
        self, outputs: Any, inputs: Any, *given: Any, **named: Any
    ) -> tuple[torch.Tensor | None, ...]:
        """Handle `torch.autograd.grad(…)`: what it is of is the loss, if no `backward()` says another one."""
        found = super().gradient_of(outputs, inputs, *given, **named)
        if not self._has_backward:
            location, output = source.here(), all_rows(as_list(outputs)[0])
            with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
                self.loss = source.call_at(location, torch.sum, output) if output.dim() else output
        return found

    def _loss(
        self,
        outputs: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor | None],
        location: SourceLocation | None,
    ) -> torch.Tensor:
        """Return the one number whose gradient is taken: the sum of the outputs, each times its gradient."""
        if len(outputs) == 1 and not outputs[0].dim() and gradients in ([], [None]):
            loss = outputs[0]
        else:
            terms: list[torch.Tensor] = []
            with torch._C.DisableTorchFunction(), torch.enable_grad():  # pyright: ignore[reportPrivateUsage]
                for number, output in enumerate(outputs):
                    gradient = gradients[number] if gradients else None
                    if gradient is not None:
                        term = source.call_at(location, torch.mul, output, gradient.detach())
                        terms.append(source.call_at(location, torch.sum, term))
                    elif output.numel() == 1:
                        terms.append(source.call_at(location, torch.sum, output))
                    else:
                        raise trace_error(
                            f"backward() needs a 0-d loss of floating-point numbers{quoted(location)}; reduce it with .mean() or"
                            " .sum(), or give a gradient",
                            location,
                        )
                loss = terms[0]
                for term in terms[1:]:
                    loss = source.call_at(location, torch.add, loss, term)
        if not loss.is_floating_point() or not loss.requires_grad:
            raise trace_error(f"the loss depends on no parameter{quoted(location)}", location)
        self.functions.expect_known(loss)
        return loss


def _asked_by_user() -> bool:
    """True if the user's code is the caller, through torch's dispatch."""
    frame = sys._getframe(4)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.endswith(DISPATCH):
        frame = frame.f_back
    return is_users_file(frame.f_code.co_filename)

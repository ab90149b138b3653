"""`torch.autograd.Function` while a step is traced: its forward and its backward become part of the graph.

A function that takes a gradient runs here as torch runs it: `forward` without gradients, then `backward` at once, on
gradients that arrive later. Torch runs `backward` when the loss is differentiated, so fewer operations are allowed in
it (`backwards.py`). If it raises, differentiating through the function raises that error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import get_ident
from typing import Any, cast

import torch
from torch.autograd.function import Function, FunctionCtx, once_differentiable
from torch.utils.checkpoint import CheckpointFunction

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.autograd_graph import edges_behind, edges_from
from aicf_mlir.frontend.batched import batches, unbatched
from aicf_mlir.frontend.checkpointed import Checkpoints
from aicf_mlir.frontend.custom_gradients import ARRIVING, CUSTOM_GRADIENT
from aicf_mlir.frontend.exchange_calls import APPLIED
from aicf_mlir.frontend.operands_written import OperandsWritten
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.types import has_numbers
from aicf_mlir.ir.locations import SourceLocation

BASE: Any = Function.__mro__[1]
"""The class in which `Function.apply` finds the method it calls, however the user has obtained it."""

FUNCTION: Any = import_module("torch.autograd.function")
"""The module whose `custom_function_call` applies a function inside of vmap."""

OF_TORCH = ("torch._library", "torch._functorch", "aicf_mlir")
"""Modules whose functions are the gradient of an op; the graph contains the op itself."""


class Context(FunctionCtx):
    """The data that `forward` leaves for `backward`."""

    def __init__(self, needs_input_grad: tuple[bool, ...]):
        self.needs_input_grad = needs_input_grad
        self.to_save: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self.dirty_tensors: tuple[Any, ...] = ()
        self.materialize_grads = True

    saved_tensors = property(lambda self: tuple(self.to_save))
    """The tensors as they were saved."""

    def saves(self, results: Sequence[torch.Tensor]) -> bool:
        """True if any of these results of the function is kept for the backward."""
        kept = {id(each) for each in (*self.to_save, *vars(self).values())}
        return any(id(result) in kept for result in results)

    def replaced(self, results: Sequence[Any], by: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Replace kept results, and return those that replace them."""
        instead = {id(result): other for result, other in zip(results, by, strict=False)}
        self.to_save = tuple(instead.get(id(each), each) for each in self.to_save)
        vars(self).update(
            {name: instead[id(each)] for name, each in vars(self).items() if id(each) in instead}
        )
        return by or results


@dataclass
class Applied:
    """One application of a function."""

    function: Any
    location: SourceLocation | None
    is_once: bool = False
    """True if its backward has no gradient of its own."""
    results: int = 0
    """The number of results that could have a gradient."""
    is_filled: bool = True
    """True if the backward gets zeros for results that the loss does not depend on; False if it gets None."""
    error: Exception | None = None
    error_again: Exception | None = None
    """The errors that the backward has raised; the second while gradients were recorded, as with `create_graph`."""


AGAIN, MOST_AGAIN = 2, 16  # derivatives of a backward that applies its own function, if it does often or not


class Functions:
    """The functions with their own backward that one call of a step applies."""

    def __init__(self) -> None:
        self._applied: dict[Any, Applied] = {}
        """The applications by node of autograd."""
        self._autocast: dict[str, bool] = {}
        self._numbered = 0
        self._inside, self._backwards = 0, list[Any]()
        """How many functions were applied in the outermost backward that is running, and those whose backward is."""
        self.hooked: list[torch.Tensor] = []
        """The parameters with hooks, as the step sees them."""
        self.operands = OperandsWritten()
        self.checkpoints = Checkpoints()

    @contextmanager
    def traced(self, gradients_inside: bool, buffers: Sequence[torch.Tensor] = ()) -> Generator[None]:
        """Trace a step inside, with its gradients inside or after it: autocast there is the same as here, or off."""
        self._autocast = {
            device: gradients_inside and torch.is_autocast_enabled(device) for device in ("cpu", "cuda")
        }
        thread = get_ident()

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if get_ident() != thread:  # that thread trains on its own
                return cast(Any, super(BASE, cls)).apply(*args, **kwargs)
            return self._apply(cls, args, kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            return (
                of_vmap(*args, **kwargs) if get_ident() != thread else self._apply(args[0], args[1:], kwargs)
            )

        of_vmap, FUNCTION.custom_function_call = FUNCTION.custom_function_call, call
        BASE.apply = classmethod(apply)
        try:
            with self.checkpoints.traced(buffers):
                yield
        finally:
            del BASE.apply
            FUNCTION.custom_function_call = of_vmap

    def _apply(self, cls: Any, args: Sequence[Any], kwargs: Any) -> Any:
        if (exchange := APPLIED.get(cls)) is not None:
            return exchange(*args)
        needed = tuple(isinstance(arg, torch.Tensor) and unbatched(arg).requires_grad for arg in args)
        if cls.__module__.startswith(OF_TORCH) or not (
            batches() or (any(needed) and torch.is_grad_enabled())
        ):
            return cast(Any, super(BASE, cls)).apply(*args, **kwargs)
        if issubclass(cls, CheckpointFunction):
            return self.checkpoints.call(args[0], args[2:])
        applied, context, is_recorded = Applied(cls, source.here()), Context(needed), torch.is_grad_enabled()
        with gradients_enabled(False):
            with self.operands.forward(cls.__name__, args) as written:
                returned = self._forward(cls, context, args)
            copies = {id(operand): copy for operand, copy in written}
            context.replaced([operand for operand, _ in written], [*copies.values()])
            made = tuple(copies.get(id(each), each) for each in as_tuple(returned))
            again = self._backwards.count(cls)
            self._inside = self._inside + 1 if self._backwards else 0
            is_deep = again >= (AGAIN if self._inside > MOST_AGAIN else MOST_AGAIN)
            applied.is_once = differentiates_once(cls) or bool(written) or is_deep
            left = {id(tensor) for tensor in context.non_differentiable}
            carried = [n for n, each in enumerate(made) if has_gradient(each) and id(each) not in left]
            results = [plain(each) for each in made]
            refuse_dirty(applied, context)
            if carried and any(needed) and is_recorded:
                self.carry(applied, context, args, made, results, carried)
        return tuple(results) if isinstance(returned, tuple) else results[0]

    def carry(
        self,
        applied: Applied,
        context: Context,
        args: Sequence[Any],
        returned: Sequence[Any],
        results: list[Any],
        carried: list[int],
    ) -> None:
        """Replace the `carried` results by ones with the gradients that the backward computes."""
        location, number = applied.location, self._numbered
        self._numbered += 1
        saved = [returned[n] for n in carried]
        is_once = applied.is_once
        arriving: list[torch.Tensor] = []
        leaving: dict[int, torch.Tensor] = {}
        for is_enabled in (False,) if is_once else (True, False):  # as with create_graph, where that can be
            with gradients_enabled(is_enabled):
                arriving = [
                    source.call_at(location, ARRIVING, results[n], number, is_enabled)
                    for n in carried * (2 if context.saves(saved) else 1)
                ]
            saved = context.replaced(saved, arriving[len(carried) :])
            try:
                with self._outside(applied.function), gradients_enabled(is_enabled):
                    given = dict(zip(carried, arriving, strict=False))
                    left = backward(applied.function, context, results, given)
                    leaving = gradients(args, context.needs_input_grad, left, location)
                break
            except Exception as error:  # noqa: BLE001 - torch would meet it where the gradient is taken, if it is
                setattr(applied, "error_again" if is_enabled else "error", error)
        of = [
            n
            for n, needed in enumerate(context.needs_input_grad)
            if needed and (applied.error or n in leaving)
        ]
        with torch.enable_grad():
            made = source.call_at(
                location,
                CUSTOM_GRADIENT,
                [results[n] for n in carried],
                [args[n] for n in of],
                arriving,
                [*leaving.values()],
                number,
                is_once,
            )
        applied.results, applied.is_filled = len(carried), context.materialize_grads
        self._applied[unbatched(made[0]).grad_fn] = applied
        for n, result in zip(carried, made, strict=True):
            results[n] = result

    def _forward(self, cls: Any, context: Context, args: Sequence[Any]) -> Any:
        if cls.setup_context is BASE.setup_context:
            return cls.forward(context, *args)
        returned = cls.forward(*args)
        cls.setup_context(context, tuple(args), returned)
        return returned

    @contextmanager
    def _outside(self, cls: Any) -> Generator[None]:
        """Set autocast to its state where the gradients are taken, in the backward of a function."""
        with ExitStack() as stack:
            self._backwards.append(cls)
            stack.callback(self._backwards.pop)
            for device, enabled in self._autocast.items():
                if torch.is_autocast_enabled(device) != enabled:
                    stack.enter_context(torch.autocast(device, enabled=enabled))
            yield

    def expect_known(self, loss: torch.Tensor) -> None:
        """Raise TraceError if the gradient of `loss` needs a function whose backward is not known."""
        reached: dict[Any, set[int]] = {}
        for node, result in edges_behind(loss):
            reached.setdefault(node, set()).add(result)
        for node, results in reached.items():
            if (applied := self._applied.get(node)) is not None:
                self._expect(applied, len(results))
            elif "CppNode" in node.name():
                raise trace_error(
                    f"the backward of {node.name()} is written in C++ and cannot be traced; write it as a"
                    " torch.autograd.Function in Python"
                )

    def expect_again(self, output: torch.Tensor, location: SourceLocation | None) -> None:
        """Raise TraceError if the gradient of `output` has a graph of its own, and needs a backward that can have none."""
        for node, _ in edges_behind(output):
            applied = self._applied.get(node)
            if applied is not None and (error := applied.error_again) is not None:
                raise trace_error(
                    f"the backward of the autograd function {applied.function.__name__!r} cannot be differentiated again"
                    f"{quoted(location)}: {type(error).__name__}: {error}",
                    location,
                )

    def expect_none_between(self, output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> None:
        """Raise TraceError if `output` depends on `inputs` through a function, whose derivative forwards is not known."""
        for node in {node for node, _ in edges_behind(output)}:
            if (applied := self._applied.get(node)) is None:
                continue
            before = {each for each, _ in edges_from(node)}
            leaves = {id(getattr(each, "variable", None)) for each in before}
            if any(each.grad_fn in before or id(each) in leaves for each in inputs):
                location = source.here()
                raise trace_error(
                    f"the autograd function {applied.function.__name__!r} is differentiated forwards{quoted(location)}, which is"
                    " not supported; use vjp, jacrev or torch.autograd.grad",
                    location,
                )

    def _expect(self, applied: Applied, reached: int) -> None:
        name, location = repr(applied.function.__name__), applied.location
        if isinstance(error := applied.error, TraceError):
            raise error
        if error is not None:
            raise trace_error(
                f"the backward of the autograd function {name} cannot be traced: {type(error).__name__}: {error}",
                source.of_traceback(error.__traceback__) or location,
            )
        if not applied.is_filled and reached < applied.results:
            raise trace_error(
                f"the autograd function {name} calls set_materialize_grads(False), and not all of its results reach the"
                f" loss{quoted(location)}; leave that call out, or use all results",
                location,
            )
        if any(torch.is_autocast_enabled(device) != enabled for device, enabled in self._autocast.items()):
            raise trace_error(
                f"the gradient of the autograd function {name} is taken inside torch.autocast; call backward() outside of it",
                source.here(),
            )


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return one value as a tuple of it."""
    return cast(tuple[Any, ...], value) if isinstance(value, tuple) else (value,)


def has_gradient(result: object) -> bool:
    """True if a result of a function could have a gradient."""
    return isinstance(result, torch.Tensor) and has_numbers(result)


def plain(value: object) -> object:
    """Return a view of an operand, or of a view of one, as its plain value."""
    return value.detach() if isinstance(value, torch.Tensor) and unbatched(value).requires_grad else value


@contextmanager
def gradients_enabled(enabled: bool) -> Generator[None]:
    """Act as torch does for forward and backward of a function: no block in the graph, but a mode of each op."""
    before = torch.is_grad_enabled()
    set_enabled: Any = torch._C._set_grad_enabled  # pyright: ignore[reportPrivateUsage]
    with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
        set_enabled(enabled)
    try:
        yield
    finally:
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            set_enabled(before)


ONCE_DIFFERENTIABLE = once_differentiable(lambda ctx: None).__code__


def backward_of(cls: Any) -> Callable[..., Any]:
    """Return the method that computes the gradients of a function."""
    return cls.backward if cls.vjp is Function.vjp else cls.vjp


def differentiates_once(cls: Any) -> bool:
    """True for a backward under `once_differentiable`."""
    function: Any = backward_of(cls)
    while function is not None:
        if getattr(function, "__code__", None) is ONCE_DIFFERENTIABLE:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def backward(
    cls: Any, context: Context, results: Sequence[Any], arriving: dict[int, torch.Tensor]
) -> tuple[Any, ...]:
    """Return the gradients that the backward of a function computes from the gradients of its results."""

    def given(position: int, result: Any) -> Any:
        if position in arriving or not isinstance(result, torch.Tensor) or not context.materialize_grads:
            return arriving.get(position)
        return torch.zeros_like(result)

    left = backward_of(cls)(context, *(given(position, result) for position, result in enumerate(results)))
    return as_tuple(left)


def refuse_dirty(applied: Applied, context: Context) -> None:
    """Raise TraceError for a function that declares a change of an operand."""
    if context.dirty_tensors:
        raise trace_error(
            f"the autograd function {applied.function.__name__!r} changes an operand in place (mark_dirty)"
            f"{quoted(applied.location)}, which is not supported; return a new tensor",
            applied.location,
        )


def gradients(
    args: Sequence[Any], needed: Sequence[bool], left: Sequence[Any], location: SourceLocation | None
) -> dict[int, torch.Tensor]:
    """Return the gradients that a backward has returned, by the operand's position: in its shape and type, as torch
    makes them.
    """
    given = list(left)
    while len(given) > len(args) and given[-1] is None:
        given.pop()
    if len(given) != len(args):
        raise RuntimeError(f"it returned {len(left)} gradients, expected {len(args)}")
    found: dict[int, torch.Tensor] = {}
    for position, (arg, gradient, is_needed) in enumerate(zip(args, given, needed, strict=True)):
        if gradient is None:
            continue
        if not isinstance(arg, torch.Tensor):
            raise RuntimeError(f"it returned a gradient for the argument {position}, which is no tensor")
        if is_needed:
            own = gradient if torch.is_grad_enabled() else plain(gradient)
            found[position] = source.call_at(location, like, own, arg, position)
    return found


def like(gradient: Any, operand: torch.Tensor, position: int) -> torch.Tensor:
    """Return a gradient as torch makes it fit its operand."""
    if not isinstance(gradient, torch.Tensor):
        raise RuntimeError(f"it returned {type(gradient).__name__} as gradient {position}")
    if gradient.shape != operand.shape:
        try:
            gradient = gradient.sum_to_size(*operand.shape)
        except RuntimeError:
            raise RuntimeError(
                f"it returned a gradient of shape {list(gradient.shape)} for the argument {position} of shape"
                f" {list(operand.shape)}"
            ) from None
    return gradient if gradient.dtype == operand.dtype else gradient.to(operand.dtype)

"""A recorder of facts that torch.export does not keep: precise lines, and values that Python reads.

`Recorder` sees every torch function that the user's code calls while the step is exported. It

- runs the function under a frame that carries the user's file and line: torch.export keeps only frames of
  functions called `forward`, and so would lose the lines of a loss function or a helper;
- notes the lines under `no_grad` that cut a gradient;
- refuses code that reads the values of a tensor in Python, since the compiled step could not follow them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only  # pyright: ignore[reportUnknownVariableType]

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import custom_ops, source
from aicf_mlir.frontend.assertions import passed
from aicf_mlir.frontend.batched import batches, is_batched, unbatched
from aicf_mlir.frontend.caught import note_raised
from aicf_mlir.frontend.custom_gradients import CUSTOM_GRADIENT
from aicf_mlir.frontend.drawn import refuse_generator
from aicf_mlir.frontend.functions import Functions
from aicf_mlir.frontend.inner_gradients import OF_GRAD, InnerGradients, makes_leaf
from aicf_mlir.frontend.known_indices import with_known_index
from aicf_mlir.frontend.known_values import CONSTANT, Computed, KnownValues, Unknown
from aicf_mlir.frontend.places import of_step, pause, resume
from aicf_mlir.frontend.replaced_data import ReplacedData, is_same_view, memory_of
from aicf_mlir.frontend.selections import Selections
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.special import refuse_special
from aicf_mlir.frontend.torch_errors import TRANSFORMS, in_transform, refuse_exchange
from aicf_mlir.frontend.values import is_a, is_plain, members
from aicf_mlir.frontend.written import written
from aicf_mlir.ir.locations import SourceLocation

READS_VALUES = {
    "__bool__": "branches on the value of a tensor",
    "__contains__": "searches the values of a tensor",
    **dict.fromkeys(("__format__", "__repr__"), "formats the value of a tensor"),
    "__array__": "converts a tensor to NumPy",
    "__dlpack__": "hands over the memory of a tensor",
    "numpy": "converts a tensor to NumPy",
    "tolist": "reads the values of a tensor",
    "allclose": "compares the values of tensors",
    "equal": "compares the values of tensors",
    **dict.fromkeys(
        ("item", "__int__", "__float__", "__complex__", "__index__"), "reads the value of a tensor"
    ),
}
"""Functions, by name, whose result is no tensor but depends on the values of one."""

UNKNOWN_SHAPE = "makes a tensor whose shape depends on values"

UNKNOWN_SHAPES = {
    "__getitem__": f"{UNKNOWN_SHAPE}, the elements under a boolean mask (let it begin the index, and index the rest afterwards)",
    "_pack_padded_sequence": f"{UNKNOWN_SHAPE}, a packed sequence (pad it, and mask what the padding gives)",
}
"""Functions of unknown result shape, with a longer explanation."""

IS_LEAF: Any = vars(torch._C.TensorBase)["is_leaf"].__get__  # pyright: ignore[reportPrivateUsage]

BESIDE_THE_GRAPH = {
    "data": "replaces `.data`",
    "detach_": "calls `detach_()`",
    "requires_grad_": "calls `requires_grad_(False)`",
    "requires_grad": "sets `requires_grad` to False",
    "set_": "calls `set_()`",
    "register_hook": "registers a gradient hook",
    "backward": "calls `backward()`",
    "grad": "reads `.grad`",
}
"""Functions, by name, that change gradients without leaving a trace in the graph."""

LITERALS = ("tensor", "new_tensor")
"""Functions, by name, that make a tensor of Python numbers."""

ATTENTION = (
    torch.nn.functional.scaled_dot_product_attention,
    torch.nn.functional.multi_head_attention_forward,
)
"""Functions of which torch has several forms, one of them with a second derivative."""

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Types of real tensors; tensors of the tracer have a type of their own."""


class Recorder(InnerGradients, TorchFunctionMode):
    """Watches the user's code while the step is exported."""

    writes_parameters = False
    """True if the step may write to parameters itself, as a loop body does."""

    def __init__(self) -> None:
        super().__init__()
        self.without_gradient: list[SourceLocation | None] = []
        """The lines under `no_grad` that cut a gradient; torch.export loses the lines of all ops there."""
        self.captured: dict[int, torch.Tensor] = {}
        """The user's own tensors that the step reads besides its parameters, buffers and batch, by id."""
        self.leaves: dict[int, torch.Tensor] = {}
        """The tensors that the step itself has made leaves, as by `requires_grad_()`, by id."""
        self.freed: set[int] = set()
        """The ids of the user's parameters that the step itself lets require a gradient."""
        self.frozen_now: set[int] = set()
        """The ids of the user's parameters that require no gradient at this point of the step."""
        self.known = KnownValues()
        """The values of tensors that the trace knows."""
        self.selections = Selections(self.known)
        """The elements under masks."""
        self._carriers: dict[object, torch.Tensor] = {}
        """The tensors with a gradient that the step has met, by memory."""
        self.replaced = ReplacedData([])
        self.functions = Functions()
        self.custom_ops: dict[str, Any] = {}
        """What `torch.library.custom_op` has made of the ops that the step calls, by name."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        was_recording = pause()
        try:
            return self.seen(func, args, kwargs or {})
        except Exception as error:
            note_raised(error, func, args, kwargs or {})
            raise
        finally:
            if was_recording:
                resume()

    def seen(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a torch function that the user's code calls."""
        location = source.here()
        for each in (*args, *(kwargs).values()):
            refuse_generator(each, location)
        if (instead := written(func, args)) is not None:
            with self:
                return instead(*args, **kwargs)
        refuse_exchange(func, location)
        name = function_name(func)
        if (chosen := self.selections.instead(func, name, args, kwargs, location)) is not None:
            with self:
                return chosen()
        self.replaced.expect_apart(tensors((args, kwargs)), location)
        self.functions.operands.before(self, name, args)
        args = self.traced(tuple(args))
        named: dict[str, Any] = self.traced(dict(kwargs))
        kwargs = named
        if (definition := custom_ops.definition_of(func)) is not None:
            self.custom_ops[definition._qualname] = definition
            with self:
                return of_step(custom_ops.applied)(definition, args, kwargs)
        if func == IS_LEAF and any(args[0] is each for each in self.functions.hooked):
            return True  # to the user it is the parameter
        if func is torch.autograd.grad:
            return self.gradient_of(**dict(zip(OF_GRAD, args, strict=False)) | named)
        if makes_leaf(name, args, kwargs):
            self.captured.update({id(each): each for each in args if is_users(each)})
            return self.leaf(args[0])
        if name == "__deepcopy__" and args[0].is_leaf:
            return self.copied(*args)
        if kwargs.get("requires_grad") is True:
            return self.leaf(self.seen(func, args, {**kwargs, "requires_grad": False}))
        if (asked := with_known_index(self.known, func, args, kwargs)) is not None:
            with self:
                return asked()
        operands = list(tensors((args, kwargs)))
        self.captured.update({id(each): each for each in operands if is_users(each)})
        refuse_special(operands, location)
        if operands and in_transform():  # functions that leave a transform have no tensors and must run
            raise trace_error(f"the step {TRANSFORMS.format(line=quoted(location))}", location)
        if batches() and (name in CHECKS_MATRICES or kwargs.get("check_errors")):
            raise trace_error(f"{name} checks values inside of vmap{quoted(location)}, {BY_MATRIX}", location)
        if name in READS_VALUES and operands:
            try:
                return self.known.read(func, args, kwargs)
            except Unknown as unknown:
                if (side := passed(inspect.currentframe(), name, operands[0], location)) is not None:
                    return side
                refusal = value_read(READS_VALUES[name], location, str(unknown))
                if (side := self.selections.side(name, operands[0], location, refusal)) is not None:
                    return side
                raise refusal from None
        carries_gradient = any(operand.requires_grad for operand in operands)
        if name == "data" and operands:  # a fake tensor has it outside of the graph
            if len(operands) > 1:
                return self.data_replaced(operands[0], operands[1], location)
            func, name = torch.Tensor.detach, "detach"
        if carries_gradient and is_beside_the_graph(name, args, kwargs):
            raise beside_the_graph(BESIDE_THE_GRAPH[name], location)
        is_recorded = carries_gradient and writes_to_graph(name, args, kwargs)
        detached = [operand for operand in operands if not is_recorded and self._is_detached(operand)]
        versions = [(operand, operand._version) for operand in detached]
        without = [operand for operand in operands if not operand.requires_grad]
        result = self._run(location, func, name, args, kwargs)
        if func is not CUSTOM_GRADIENT and any(True for _ in tensors(result)):
            self.functions.operands.expect_unread(operands, location)
        made = without if carries_gradient else [*without, *tensors(result)]
        self.leaves.update({id(tensor): tensor for tensor in made if tensor.requires_grad and tensor.is_leaf})
        for operand, version in versions:
            if operand._version != version:
                self.written_to(
                    operand, "changes a detached tensor in place, and the one with a gradient too", location
                )
        self._carriers.update({memory_of(t): t for t in tensors((operands, result)) if t.requires_grad})
        self.selections.masks.note(name, args, kwargs, result)
        self.replaced.note(tensors(result))
        return result

    def expect_apart(self, location: SourceLocation | None) -> None:
        """Raise TraceError if a tensor that has got the memory of another by `.data =` is left with another value than that."""
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            self.replaced.expect_apart(self.replaced.tensors, location)

    def copied(self, tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        """Handle `copy.deepcopy(tensor)`: a tensor of its own, a leaf and a parameter if this is one."""
        if id(tensor) not in memo:
            made = self.seen(torch.clone, (self.seen(torch.detach, (tensor,), {}),), {})
            if tensor.requires_grad:
                made = self.leaf(made)
            if isinstance(tensor, torch.nn.Parameter):
                vars(made)["_is_param"] = True  # torch's own mark for isinstance
            memo[id(tensor)] = made
        return memo[id(tensor)]

    def leaf(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the leaf that replaces a tensor; nothing may write to the memory that torch's leaf would share."""
        self._carriers.setdefault(memory_of(tensor), tensor)
        return super().leaf(tensor)

    def written_to(self, operand: torch.Tensor, how: str, location: SourceLocation | None) -> None:
        """Raise TraceError: a tensor with a gradient has a new value that autograd did not record."""
        del operand
        raise beside_the_graph(how, location)

    def data_replaced(
        self, tensor: torch.Tensor, value: torch.Tensor, location: SourceLocation | None
    ) -> None:
        """Handle `tensor.data = value`: it becomes the new value, if both stay apart. The value may be the current one, where
        `.to(device)` moves nothing. Raises TraceError for a tensor with a gradient.
        """
        if is_same_view(tensor, value):
            return
        if tensor.requires_grad or not self.replaced.is_given(tensor):
            raise beside_the_graph(BESIDE_THE_GRAPH["data"], location)
        self.replace_data(tensor, value, location)

    def replace_data(
        self, tensor: torch.Tensor, value: torch.Tensor, location: SourceLocation | None
    ) -> None:
        """Copy a value to a tensor that gets its memory."""
        self.replaced.expect_like(tensor, value, location)
        self.seen(
            torch.Tensor.copy_, [self.seen(torch.Tensor.detach, [each], {}) for each in (tensor, value)], {}
        )
        self.replaced.add(tensor, value)

    def _is_detached(self, operand: torch.Tensor) -> bool:
        """True if a tensor without a gradient shares the memory of one that has a gradient."""
        return not operand.requires_grad and memory_of(operand) in self._carriers

    def _run(
        self,
        location: SourceLocation | None,
        func: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Return the result of the call, and note the lines where torch records no gradient."""
        operands = list(tensors((args, kwargs)))
        carriers = [operand for operand in operands if operand.requires_grad]
        versions = [operand._version for operand in carriers]
        is_unknown = name in BESIDE_THE_GRAPH or batches()
        computed = Unknown("") if is_unknown else self.known.computed(func, args, kwargs)
        if isinstance(computed, Computed) and computed.by_values:
            constants = self.known.constants(computed)
            result = tree_map_only(
                torch.Tensor, lambda real: source.call_at(location, torch.clone, real), constants
            )
        else:
            with sdpa_kernel(SDPBackend.MATH) if func in ATTENTION else nullcontext():
                result = source.call_at(location, of_step(func), *args, **kwargs)
        if any(type(size) is not int for tensor in tensors(result) for size in tensor.shape):
            why = self.known.why(operands)
            raise value_read(UNKNOWN_SHAPES.get(name, UNKNOWN_SHAPE), location, why)
        if carriers and not torch.is_grad_enabled():
            without_claims(result, operands)
            for operand, version in zip(carriers, versions, strict=True):
                if operand._version != version:
                    self.written_to(operand, "changes a tensor in place under `no_grad`", location)
            if any(is_cut_off(tensor) for tensor in tensors(result)):
                self.without_gradient.append(location)
        if name in LITERALS and is_a(result, torch.Tensor):  # the graph's own, which nothing may write to
            result = source.call_at(location, torch.clone, result)
        self.known.follow(result, (args, kwargs), computed)
        return result


CHECKS_MATRICES = ("linalg_cholesky", "cholesky", "linalg_inv", "inverse", "linalg_solve")
"""Functions whose checks vmap takes apart: a version of torch drops them there, and others make effects of them."""

BY_MATRIX = "which is not supported; call it on the whole batch, or linalg.cholesky_ex, inv_ex or solve_ex, which do not check"


def is_users(tensor: torch.Tensor) -> bool:
    """True if it is a real tensor of the user's."""
    return type(tensor) in PLAIN and not is_batched(tensor) and not hasattr(tensor, CONSTANT)


def function_name(func: Callable[..., Any]) -> str:
    """Return `relu` for torch.relu, `item` for Tensor.item, `data` for the getter and the setter of Tensor.data."""
    name: str = getattr(func, "__name__", "")
    owner = getattr(func, "__self__", None)
    return getattr(owner, "__name__", name) if name in ("__get__", "__set__") else name


def is_beside_the_graph(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a call is one of `BESIDE_THE_GRAPH`; reading `requires_grad` or setting it to True is harmless."""
    harmless = name.startswith("requires_grad") and not any(a is False for a in [*args, *kwargs.values()])
    return name in BESIDE_THE_GRAPH and not harmless


def writes_to_graph(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a call writes to its first operand alone, and autograd records that: `h[0] -= h[1].detach()` only reads what is
    detached.
    """
    is_in_place = name.endswith("_") and "out" not in kwargs and torch.is_grad_enabled()
    return is_in_place and bool(args) and is_a(args[0], torch.Tensor) and args[0].requires_grad


def tensors(tree: object) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples, lists and dictionaries; for one inside of vmap the tensor with all rows."""
    if is_a(tree, torch.Tensor):
        yield unbatched(tree)
    elif not is_plain(tree):
        for _, each in members(tree) or ():
            yield from tensors(each)


def without_claims(result: object, operands: Sequence[torch.Tensor]) -> None:
    """Take the mark of a gradient from tensors made under `no_grad`: while torch traces, the result of `F.pad` has it."""
    memories = {memory_of(operand) for operand in operands}
    for made in tensors(result):
        if made.requires_grad and made.is_leaf and memory_of(made) not in memories:
            made.requires_grad_(False)


def is_cut_off(tensor: torch.Tensor) -> bool:
    """True if a result of differentiable operands could have a gradient but has none."""
    return tensor.is_floating_point() and not tensor.requires_grad


def value_read(what: str, location: SourceLocation | None, why: str = "") -> TraceError:
    """Return the error for code that depends on the values of a tensor; `why` names the inputs that these depend on."""
    instead = "compute with tensors of one size (pad, mask, torch.where), or before the step, and pass the result in the batch"
    if source.is_inside(torch.distributions):
        instead = "leave out the checks of the distribution, validate_args=False"
    origin = f", which depends on {why}" if why else ""
    return trace_error(
        f"the step {what}{quoted(location)}{origin}; a compiled step runs no Python, so its control flow, shapes and"
        f" constants cannot depend on tensor values: {instead}",
        location,
    )


def beside_the_graph(what: str, location: SourceLocation | None) -> TraceError:
    """Return the error for code that changes gradients without the graph recording it."""
    return trace_error(
        f"the step {what}{quoted(location)}, which the gradient of a compiled step would not follow; remove it",
        location,
    )

"""`torch.library.custom_op` while a step is traced: its Python body and its registered backward become part of the graph.

The op is applied as a `torch.autograd.Function` of its parts (`functions.py`). Its fake and vmap rules are not needed: the
body is traced by the operations of torch in it. An op of another kind has no body that Python can see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.amp import autocast_mode
from torch.autograd.function import Function
from torch.utils import _pytree as pytree  # pyright: ignore[reportPrivateUsage]

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.frontend.functions import gradients_enabled
from aicf_mlir.frontend.reads import Read
from aicf_mlir.frontend.source import quoted, trace_error

tree: Any = pytree

DEFINITIONS: Mapping[str, Any] = import_module("torch._library.custom_ops").OPDEFS
"""The ops of `torch.library.custom_op`, by name."""

CASTS: Any = autocast_mode
"""The module whose `_cast` casts the operands of an op with `register_autocast`."""


def definition_of(func: Any) -> Any:
    """Return what `torch.library.custom_op` has made of a function; None for any other function of torch, and for an op that
    has a rule here.
    """
    packet: Any = func
    if isinstance(func, OpOverload):
        name = func.name().partition(".")[0]
    elif isinstance(func, OpOverloadPacket):
        name = packet._qualified_op_name
    else:
        return None
    return None if f"{name.replace('::', '.')}.default" in TABLE else DEFINITIONS.get(name)


def registered_for(definition: Any) -> Iterator[Read]:
    """Yield the places of the functions that are registered for an op."""
    name = f"torch.ops.{definition._namespace}.{definition._name}"
    for part in ("_backend_fns", "_autocast_dtype"):
        yield Read(f"{name}.{part}", "items", vars(definition)[part])
    yield Read(f"{name}._disabled_kernel", "equal", definition._disabled_kernel)
    for part in ("_backward_fn", "_setup_context_fn"):
        yield Read(f"{name}.{part}", "item", vars(definition), part, is_code=True)


def applied(definition: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the results of an op. Raises TraceError, with its name, if its body cannot be traced, and what the body raises."""
    op = _Op(definition, *_arguments(definition, args, kwargs))
    flat, op.operands = tree.tree_flatten(op.args, is_leaf=is_leaf)
    parts: tuple[Any, ...] = (op.forward, op.setup_context, op.backward)
    functions = {each.__name__: staticmethod(each) for each in parts}
    apply: Any = type(definition._qualname, (Function,), {**functions, "__module__": ""}).apply
    found = apply(*flat)
    return tree.tree_unflatten(found if isinstance(found, tuple) else (found,), op.results)


def _arguments(
    definition: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional arguments of a call and those by keyword, with defaults."""
    schema = definition._opoverload._schema.arguments
    given = {**dict(zip((each.name for each in schema), args, strict=False)), **kwargs}
    values = {each.name: given.get(each.name, each.default_value) for each in schema}
    return tuple(values[each.name] for each in schema if not each.kwarg_only), {
        each.name: values[each.name] for each in schema if each.kwarg_only
    }


def is_leaf(value: Any) -> bool:
    """True for all but the tuple of arguments and a list of tensors, whose tensors have gradients of their own."""
    if not isinstance(value, (list, tuple)):
        return True
    members = cast(Sequence[Any], value)
    return isinstance(value, list) and not all(
        each is None or isinstance(each, torch.Tensor) for each in members
    )


@dataclass
class _Op:
    """One application of an op."""

    definition: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    operands: Any = None
    """The structure of the arguments, some of which are lists of tensors."""
    returned: Any = None
    """What the body returns."""
    results: Any = None
    """The structure of what it returns."""

    def forward(self, *flat: Any) -> tuple[Any, ...]:
        """Run the body."""
        self.returned = self._computed(tree.tree_unflatten(flat, self.operands))
        found, self.results = tree.tree_flatten(self.returned, is_leaf=is_leaf)
        return tuple(found)

    def setup_context(self, ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the backward needs."""
        del output
        if (setup := self.definition._setup_context_fn) is not None:
            named = {"keyword_only_inputs": self.keywords} if self.keywords else {}
            args = tree.tree_unflatten(inputs, self.operands)
            setup(ctx=ctx, inputs=args, output=self.returned, **named)

    def backward(self, ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """Return the gradients of the operands. Raises torch's error for an op without `register_autograd`."""
        if self.definition._backward_fn is None:
            raise RuntimeError(
                f"Trying to backward through {self.definition._opoverload} but no autograd formula was registered"
            )
        given, flat = tree.tree_unflatten(cotangents, self.results), ctx.needs_input_grad
        ctx.needs_input_grad = tree.tree_unflatten(flat, self.operands)
        try:
            left = self.definition._backward_fn(ctx, *(given if isinstance(given, tuple) else (given,)))
        finally:
            ctx.needs_input_grad = flat
        return tuple(tree.tree_leaves(left if isinstance(left, tuple) else (left,), is_leaf=is_leaf))

    def _computed(self, args: Sequence[Any]) -> Any:
        """Return what the body computes, as torch runs it: without gradients, on the device of the operands."""
        location = source.here()
        given: list[Any] = tree.tree_leaves(args, is_leaf=is_leaf)
        device = next((each.device.type for each in given if isinstance(each, torch.Tensor)), None)
        kernels = self.definition._backend_fns
        body = kernels.get(device) or kernels.get(None) or self.definition._init_fn
        with ExitStack() as stack:
            stack.enter_context(gradients_enabled(False))
            low = self.definition._autocast_dtype.get(device)
            if low is not None and torch.is_autocast_enabled(str(device)):
                args = CASTS._cast(tuple(args), device, low)
                stack.enter_context(torch.autocast(str(device), enabled=False))
            try:
                return body(*args, **self.keywords)
            except TraceError as error:
                raise trace_error(
                    f"the custom op {self.definition._qualname!r}{quoted(location)} cannot be traced: {error.reason}",
                    source.of_traceback(error.__traceback__) or location,
                ) from error

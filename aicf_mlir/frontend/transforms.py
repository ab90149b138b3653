"""The transforms of `torch.func` while a step is traced: gradients of the step's own graph, of any order.

`grad`, `vjp`, `jacrev` and `hessian` of torch are made of a few functions that wrap the arguments at a level of their own. Here
an argument is another input of the same graph, and the gradient with respect to it one that the step takes. `jvp` and `jacfwd`
differentiate a gradient, which is linear in what it is multiplied by. `vmap` is torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from threading import get_ident
from typing import Any, cast

import torch
from torch.autograd import Variable, forward_ad
from torch.utils import _pytree as pytree  # pyright: ignore[reportPrivateUsage]

from aicf_mlir.frontend import source
from aicf_mlir.frontend.batched import at_this_level, rows_of, unbatched
from aicf_mlir.frontend.duals import Duals, place_of
from aicf_mlir.frontend.inner_gradients import InnerGradients
from aicf_mlir.frontend.source import quoted, trace_error

EAGER: Any = import_module("torch._functorch.eager_transforms")
"""The module in which torch looks these functions up."""

VMAP: Any = import_module("torch._functorch.vmap")
"""The module of `torch.vmap`."""

tree: Any = pytree


@contextmanager
def traced(gradients: InnerGradients) -> Generator[None]:
    """Trace a step inside, whose transforms become gradients of its graph; other threads have torch's."""
    thread, before = get_ident(), list[tuple[Any, str, Any]]()

    def here(name: str, function: Callable[..., Any], module: Any = EAGER) -> None:
        theirs = getattr(module, name)
        own = cast(dict[str, Any], vars(module))
        before.append((module, name, own.get(name)))

        def chosen(*args: Any, **kwargs: Any) -> Any:
            return (function if get_ident() == thread else theirs)(*args, **kwargs)

        setattr(module, name, chosen)

    def wrapped(given: Any, level: int) -> Any:
        def own(tensor: torch.Tensor) -> torch.Tensor:
            return gradients.new_input(at_this_level(tensor))

        return tree.tree_map_only(torch.Tensor, own, given)

    def same(given: Any, level: int | None = None) -> Any:
        del level
        return given

    def jvp(
        func: Any, primals: Any, tangents: Any, argnums: Any, *, strict: bool = False, has_aux: bool
    ) -> Any:
        return pushed_forward(gradients, func, primals, tangents, argnums, strict, has_aux)

    here("grad_increment_nesting", _no_level)
    here("_wrap_all_tensors", wrapped)
    here("_create_differentiable", same)
    here("_undo_create_differentiable", same)
    here("_autograd_grad", gradients_of)
    here("_jvp_with_argnums", jvp)
    here("lazy_dynamo_disallow", _linear)
    here("_remove_batch_dim", rows_of, VMAP)
    here("__new__", variable, Variable)
    for name, function in Duals(gradients, partial(found_derivatives, gradients)).functions().items():
        here(name, function, place_of(name))
    before.append((forward_ad, "_current_level", vars(forward_ad)["_current_level"]))
    try:
        yield
    finally:
        for module, name, theirs in before:
            if theirs is None:  # inherited
                delattr(module, name)
            else:
                setattr(module, name, theirs)


def variable(_: type, data: torch.Tensor, requires_grad: bool = False, volatile: Any = None) -> torch.Tensor:
    """Do `torch.autograd.Variable(data, requires_grad)`, of which a trace sees a tensor without a gradient: a new leaf."""
    del volatile
    made = data.detach()
    return made.requires_grad_() if requires_grad else made


def _linear(function: Any) -> Callable[[Any], Any]:
    """Replace the two steps in which `torch.func.linearize` makes a graph of a function of tangents: the step is one.

    Torch folds all else into constants: what the function returns has a gradient with respect to the tangents alone.
    """

    def along(traced: Any, *tangents: torch.Tensor) -> list[torch.Tensor]:
        if any(unbatched(tangent).requires_grad for tangent in tangents):
            location = source.here()
            raise trace_error(
                f"a tangent of torch.func.linearize has a gradient{quoted(location)}, which is not supported; use torch.func.jvp,"
                " through which all gradients flow, or detach the tangent",
                location,
            )
        return [each.detach() for each in tree.tree_leaves(traced(tangents))]

    if function is not EAGER.make_fx:
        return lambda graph: graph

    def made(traced: Any) -> Any:
        def at(_: Any) -> Any:
            return partial(along, traced)

        return at

    return made


@contextmanager
def _no_level() -> Generator[int]:
    """A level of differentiation that is none: the inputs tell gradients apart."""
    yield 0


def gradients_of(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    grad_outputs: Sequence[torch.Tensor] | None = None,
    retain_graph: bool = False,
    create_graph: bool = True,
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of outputs, zero for inputs that these do not depend on; the graph is the step's and stays."""
    del retain_graph
    carrying = [number for number, output in enumerate(outputs) if unbatched(output).requires_grad]
    found: Sequence[torch.Tensor | None] = [None] * len(inputs)
    if carrying:
        found = torch.autograd.grad(
            [outputs[number] for number in carrying],
            inputs,
            None if grad_outputs is None else [grad_outputs[number] for number in carrying],
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
        )
    return tuple(
        torch.zeros_like(own) if each is None else each for each, own in zip(found, inputs, strict=True)
    )


def pushed_forward(
    gradients: InnerGradients,
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: Any,
    argnums: Any,
    strict: bool,
    has_aux: bool,
) -> tuple[Any, ...]:
    """Return the value of a function and its derivative along tangents, as `torch.func.jvp` does."""
    chosen = primals if argnums is None else EAGER._slice_argnums(primals, argnums)
    given, structure = tree.tree_flatten(chosen)
    along, other = tree.tree_flatten(tangents)
    if structure != other:
        raise RuntimeError(
            f"jvp(f, primals, tangents): expected primals and tangents of one structure, got {structure} and {other}"
        )
    with torch.enable_grad():
        inputs = [gradients.new_input(at_this_level(each)) for each in given]
        own = tree.tree_unflatten(inputs, structure)
        args = own if argnums is None else EAGER._replace_args(primals, own, argnums)
        made = func(*args)
        made, aux = made if has_aux else (made, None)
        outputs, result = tree.tree_flatten(made)
        found = tree.tree_unflatten(derivatives(gradients, outputs, inputs, along, strict), result)
    return (made, found, aux) if has_aux else (made, found)


def derivatives(
    gradients: InnerGradients,
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    along: Sequence[torch.Tensor],
    strict: bool,
) -> list[torch.Tensor]:
    """Return the derivatives of outputs along tangents of the inputs: zero for an output that does not depend on them."""
    found = found_derivatives(gradients, outputs, inputs, along)
    if strict and any(each is None for each in found):
        raise RuntimeError(
            "jvp(f, primals, tangents, strict=True): an output of f does not depend on the inputs"
        )
    return [
        torch.zeros_like(output) if each is None else each
        for each, output in zip(found, outputs, strict=True)
    ]


def found_derivatives(
    gradients: InnerGradients,
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    along: Sequence[torch.Tensor],
) -> list[torch.Tensor | None]:
    """Return the derivatives of outputs along tangents of the inputs: a gradient is linear in its seeds."""
    if not any(unbatched(output).requires_grad for output in outputs):
        return [None] * len(outputs)
    for output in outputs:
        gradients.functions.expect_none_between(unbatched(output), list(map(unbatched, inputs)))
    seeds = [gradients.new_input(torch.zeros_like(output).detach()) for output in outputs]
    differentiated: Any = torch.autograd.grad
    back = differentiated(outputs, inputs, seeds, create_graph=True, allow_unused=True)
    used = [(each, tangent) for each, tangent in zip(back, along, strict=True) if each is not None]
    found: Sequence[torch.Tensor | None] = [None] * len(seeds)
    if used:
        of, by = cast(
            tuple[list[torch.Tensor], list[torch.Tensor]], tuple(map(list, zip(*used, strict=True)))
        )
        found = torch.autograd.grad(of, seeds, by, create_graph=True, allow_unused=True)
    return list(found)

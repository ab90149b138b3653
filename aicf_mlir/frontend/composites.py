"""Composites of torch under autocast: autocast casts the ops in its lists, and an unlisted composite consists of listed
ops.

Torch casts the parts of a composite as they are called, the product of an einsum like any other. An export keeps
composites whole, also in autocast's blocks, and autocast does not see their later decomposition. So each composite gets
an autocast kernel of its own while torch makes an autocast block functional. The kernel calls the parts, or casts the
whole composite if torch does that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from aicf_mlir.frontend.aten_table import TABLE

BLOCK: Any = torch.ops.higher_order.wrap_with_autocast
"""The op that an export makes of a `with torch.autocast(…)`."""

FORMS = ("input", "data")
LOW_WHOLE = {
    "cpu": [f"aten::lstm.{form}" for form in FORMS],
    "cuda": [f"aten::{kind}.{form}" for kind in ("lstm", "gru", "rnn_relu", "rnn_tanh") for form in FORMS],
}
"""Composites that a library of the device computes, entirely in the type of autocast."""
F32_WHOLE = {"cpu": (), "cuda": ("aten::cross_entropy_loss",)}
"""Composites whose parts are all in the list of ops computed in f32."""
APART = (
    *(f"aten::{kind}.{form}" for kind in ("gru", "rnn_relu", "rnn_tanh") for form in FORMS),
    *(f"aten::{kind}_cell" for kind in ("gru", "lstm", "rnn_relu", "rnn_tanh")),
    "aten::square",
)
"""Composites with a row of the table, which would compute all of it in one type."""

Kernel = Callable[..., Any]


def _named(key: str) -> set[str]:
    """Return the ops for which torch has a kernel of a dispatch key, as `aten::add.Tensor`."""
    listed: Any = torch._C._dispatch_get_registrations_for_dispatch_key  # pyright: ignore[reportPrivateUsage]
    return set(listed(key))


def _overload(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _apart(op: OpOverload) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        key = torch._C.DispatchKey.CompositeImplicitAutograd  # pyright: ignore[reportPrivateUsage]
        return op._op_dk(key, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]

    return kernel


def _whole(op: OpOverload, device: str, dtype: torch.dtype | None) -> Kernel:
    """Return a kernel that computes all of `op` in `dtype`, or in the type of autocast."""

    def cast(value: Any) -> Any:
        is_cast = (
            isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not torch.float64
        )
        return value.to(dtype or torch.get_autocast_dtype(device)) if is_cast else value

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(cast, (args, kwargs))
        with torch.autocast(device, enabled=False):
            return op(*args, **kwargs)

    return kernel


def _listed(device: str) -> set[str]:
    return _named(f"Autocast{device.upper()}")


def _composites(device: str) -> set[str]:
    """Return the composites that are not in the lists of a device."""
    return {
        name for name in _named("CompositeImplicitAutograd") - _listed(device) if name.startswith("aten::")
    }


@cache
def _typed_kernels(device: str) -> dict[str, Kernel]:
    """Return kernels for composites to which an export gives the type of their operands, and autocast another: those of
    a library, and a resize (`.vec`) or a convolution (`.padding`) by an overload of a listed op that is not listed too.
    """
    packets = {name.partition(".")[0] for name in _listed(device)}
    found = {name: _whole(_overload(name), device, None) for name in LOW_WHOLE[device]}
    for name in sorted(_composites(device)):
        packet, _, form = name.partition(".")
        if packet in packets and form == "vec":
            found[name] = _whole(_overload(name), device, torch.float32)
        elif packet in packets and form == "padding":
            found[name] = _apart(_overload(name))
    return found


@cache
def _kernels(device: str) -> dict[str, Kernel]:
    """Return the kernels added to the autocast of a device, by the name of the op."""
    rows = {name.replace("aten.", "aten::", 1).removesuffix(".default") for name in TABLE}
    unknown = _composites(device)
    apart = unknown.difference(rows) | unknown.intersection(APART)
    found = {name: _apart(op) for name in sorted(apart) if _is_plain(op := _overload(name))}
    found |= {name: _whole(_overload(name), device, torch.float32) for name in F32_WHOLE[device]}
    return {**found, **_typed_kernels(device)}


def _is_plain(op: OpOverload) -> bool:
    """True if `op` writes to no argument and renames none: only these ops occur in a functional block."""
    schema = op._schema  # pyright: ignore[reportPrivateUsage]
    return not schema.is_mutable and not any(argument.alias_info for argument in schema.arguments)


@contextmanager
def _taught(kernels: Callable[[str], Mapping[str, Kernel]]) -> Generator[None]:
    library: Any = torch.library.Library("aten", "IMPL")
    try:
        for device in LOW_WHOLE:
            for name, kernel in kernels(device).items():
                library.impl(name.removeprefix("aten::"), kernel, f"Autocast{device.upper()}")
        yield
    finally:
        library._destroy()


def typed_by_autocast() -> AbstractContextManager[None]:
    """Export a step inside with the types that autocast gives its values at run time."""
    return _taught(_typed_kernels)


def seen_by_autocast(program: ExportedProgram) -> AbstractContextManager[None]:
    """Make blocks of autocast in `program` functional inside; without a block, nothing changes."""
    blocks = [module for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    has_any = any(node.target is BLOCK for block in blocks for node in block.graph.nodes)
    return _taught(_kernels) if has_any else nullcontext()

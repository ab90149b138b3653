"""Torch's state of the process and the thread: the part that a step reads, and contexts around a call that no compiled
step runs.

Each row defines how it is read, and the C functions that detect a change: see `runtime/around.py` and
`runtime/torch_words.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack  # pyright: ignore[reportPrivateUsage]

from aicf_mlir.frontend.reads import Read

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]

Word = tuple[Callable[..., object], object]
"""A function in C and its argument, None for none."""


def function_modes() -> list[TorchFunctionMode]:
    """The modes that see torch's functions in this thread, outermost first."""
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


def default_device() -> torch.device | None:
    """Return the device on which torch makes new tensors: from `torch.set_default_device` or `with torch.device(…)`."""
    found = [mode for mode in function_modes() if isinstance(mode, DeviceContext)]
    return found[-1].device if found else None


def read_by_every_step() -> list[Read]:
    """Return the state that C code reads, which no name in the user's code shows."""
    return [
        Read("torch.get_default_dtype()", "setting", torch.get_default_dtype, may_be_host_scalar=False),
        Read("torch.get_default_device()", "setting", default_device, may_be_host_scalar=False),
    ]


@dataclass(frozen=True)
class Surrounding:
    """A context that may surround a call of a step."""

    what: str
    """Its name in a message."""
    found: Callable[[], str | None]
    """Returns the name of the active context; None for nothing."""
    words: Sequence[Word] = ()
    names: Sequence[tuple[dict[str, Any], str]] = ()
    """The names in modules of torch that tell the same."""
    instead: str = "call it outside of it"


def _function_mode() -> str | None:
    return next((type(m).__name__ for m in function_modes() if not isinstance(m, DeviceContext)), None)


def _dispatch_mode() -> str | None:
    return next((type(mode).__name__ for mode in reversed(_get_current_dispatch_mode_stack())), None)


def _transform() -> str | None:
    found = _C._functorch.peek_interpreter_stack()
    return None if found is None else f"torch.func, {str(found.key()).rpartition('.')[2].lower()}"


def _saved_tensors_hooks() -> str | None:
    return None if _C._autograd._top_saved_tensors_default_hooks(False) is None else "saved_tensors_hooks"


def _dual_level() -> str | None:
    return "dual_level" if vars(forward_ad)["_current_level"] >= 0 else None


def _anomaly() -> str | None:
    return "torch.autograd.detect_anomaly" if torch.is_anomaly_enabled() else None


SURROUNDINGS = (
    Surrounding("a TorchFunctionMode", _function_mode, [(_C._len_torch_function_stack, None)]),
    Surrounding("a TorchDispatchMode", _dispatch_mode, [(_C._len_torch_dispatch_stack, None)]),
    Surrounding("a transform", _transform, [(_C._functorch.peek_interpreter_stack, None)]),
    Surrounding(
        "hooks on saved tensors",
        _saved_tensors_hooks,
        [(_C._autograd._top_saved_tensors_default_hooks, False)],
    ),
    Surrounding("forward-mode differentiation", _dual_level, names=[(forward_ad.__dict__, "_current_level")]),
    Surrounding(
        "anomaly detection",
        _anomaly,
        [(torch.is_anomaly_enabled, None)],
        instead="check_finite=True names the op that makes the first inf or NaN",
    ),
)


def surrounding() -> tuple[Surrounding, str] | None:
    """Return the first context around the caller that a compiled step does not run, and its name."""
    return next(((row, name) for row in SURROUNDINGS if (name := row.found()) is not None), None)


HOLDERS: tuple[dict[str, Any], ...] = (modules.__dict__, import_module("torch.optim.optimizer").__dict__)
"""The modules of torch that keep hooks for every module and every optimizer."""


def _names(holder: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in holder.items()
        if name.startswith("_global_") and name.endswith("_hooks") and isinstance(value, dict)
    ]


REGISTRATIONS = "_registration_hooks"
"""A part of the names of hooks that run when a module gets a parameter, and not in a step."""

GLOBAL_HOOKS: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = tuple(
    (holder, tuple(name for name in _names(holder) if not name.endswith(REGISTRATIONS))) for holder in HOLDERS
)
"""The dictionaries of torch's modules, each with the names in it of hooks that run in every step."""


def global_hooks() -> Iterator[tuple[str, Any]]:
    """Yield the hooks of the user's that torch runs around every module or optimizer, each with the name of its kind."""
    for holder, names in GLOBAL_HOOKS:
        for name in names:
            for hook in holder[name].values():
                module: str = getattr(hook, "__module__", None) or type(hook).__module__
                if module.partition(".")[0] not in ("torch", "aicf_mlir"):
                    yield name.removeprefix("_global_"), hook

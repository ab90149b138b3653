"""Torch's functions while an optimizer's step is traced: calls that a trace cannot take as written become equivalent ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves  # pyright: ignore[reportUnknownVariableType]

from aicf_mlir.frontend import source
from aicf_mlir.frontend.caught import note_raised
from aicf_mlir.frontend.places import of_step, pause, resume
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.traced_optimizer.forks import Forks
from aicf_mlir.frontend.traced_optimizer.numbers import LiveNumber

_torch: Any = torch

LOOKING = ("addmm", "addmv", "addbmm", "baddbmm", "addr", "leaky_relu", "renorm")
"""Functions of torch that choose their algorithm by their scalars, or whose op has a scalar that is compiled in."""

FACTS = frozenset(
    (
        *(
            "shape",
            "size",
            "ndim",
            "dim",
            "numel",
            "nelement",
            "stride",
            "is_contiguous",
            "__len__",
            "__hash__",
        ),
        *(
            "dtype",
            "device",
            "layout",
            "is_sparse",
            "is_cuda",
            "is_cpu",
            "is_floating_point",
            "is_complex",
            "type",
        ),
        *("grad", "grad_fn", "requires_grad", "is_leaf", "itemsize", "element_size", "get_device", "is_meta"),
    )
)
"""Attributes and methods, by name, that tell nothing of the values of a tensor."""

DATA: Any = vars(torch._C.TensorBase)["data"]  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType, reportAttributeAccessIssue]


class TracedCalls(TorchFunctionMode):
    """Replaces calls that a trace cannot take as written with equivalent ones.

    `p.data` is the tensor, since no gradient is needed here, and assigning to it copies. A function that reads a live
    number, as addmm reads beta, gets its value, which then becomes a condition. So does one that takes no live number.
    The value of a tensor decides as a number of the device does.
    """

    def __init__(self, forks: Forks, others: Mapping[int, tuple[torch.Tensor, str]], title: str):
        """Take the parameters without a gradient, by id, each with its place, and the name of the optimizer."""
        super().__init__()
        self._forks, self._others, self._title = forks, others, title

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        was_recording = pause()
        try:
            return self._seen(of_step(func), func, args, kwargs or {})
        except Exception as error:
            note_raised(error, func, args, kwargs or {})
            raise
        finally:
            if was_recording:
                resume()

    def _seen(self, call: Any, func: Any, args: Any, given: dict[str, Any]) -> Any:
        name: str = getattr(func, "__name__", "")
        if self._others:
            self._expect_passed_over(func, (args, given))
        if func == DATA.__get__:
            return args[0].detach()
        if func == DATA.__set__ and args[0].shape == args[1].shape and args[0].dtype == args[1].dtype:
            return args[0].copy_(args[1])
        if name == "__deepcopy__":
            return args[0].clone()
        if name == "__bool__" and args[0].numel() == 1:
            tensor = args[0]
            return self._forks.decide(("bool", id(tensor)), tensor, lambda: (tensor != 0).reshape(()))
        if (made := MADE.get(name)) and any(is_number(each) for each in (*args, *given.values())):
            return made(call, *args, **given)
        if name.rstrip("_") in ("sub", "subtract") and isinstance(given.get("alpha"), torch.SymFloat):
            add: Any = getattr(torch.Tensor, name.replace("subtract", "add").replace("sub", "add"))
            return add(*args, **{**given, "alpha": -given["alpha"]})
        if name.rstrip("_") in LOOKING:
            return with_values(call, args, given)
        try:
            return call(*args, **given)
        except (TypeError, ValueError, RuntimeError):  # of torch, for a number that it does not trace
            if not any(isinstance(each, LiveNumber) for each in (*args, *given.values())):
                raise
            return with_values(call, args, given)

    def _expect_passed_over(self, func: Any, given: Any) -> None:
        """Raise TraceError for a function that reads or changes a parameter without a gradient, or gives it one."""
        name: str = getattr(func, "__name__", "")
        asked: str = getattr(getattr(func, "__self__", None), "__name__", name)
        if name != "__set__" and asked in FACTS:
            return
        for each in tree_leaves(given):
            if isinstance(each, torch.Tensor) and (other := self._others.get(id(each))):
                location = source.here()
                raise trace_error(
                    f"{self._title}.step uses {other[1]}{source.quoted(location)}, which has no gradient in this step, and a"
                    " compiled step leaves such a parameter as it is; pass over it (if p.grad is None: continue), or leave it out"
                    " of the groups",
                    location,
                )


def is_number(value: object) -> bool:
    """True for a number that may change, and for one that is known in the first step alone, as a count of 1."""
    return isinstance(value, (float, torch.SymFloat))


def with_values(call: Callable[..., Any], args: Any, given: dict[str, Any]) -> Any:
    """Call a function with the values of live numbers, which are conditions from then on."""
    return call(*map(_frozen, args), **{key: _frozen(each) for key, each in given.items()})


def _frozen(value: Any) -> Any:
    if not isinstance(value, LiveNumber):
        return value
    whole = isinstance(value.known, int)
    return int(value) if whole else float(value)


def _filled(call: Any, size: Any, fill_value: Any, **given: Any) -> Any:
    dtype = given.get("dtype") or torch.get_default_dtype()
    one = _torch.scalar_tensor(fill_value, dtype=dtype, device=given.get("device"))
    return one.expand(size).clone() if size else one


def _tensor_of(call: Any, data: Any, *dtype: Any, **given: Any) -> Any:
    kind = given.get("dtype") or (dtype[0] if dtype else torch.get_default_dtype())
    return _torch.scalar_tensor(data, dtype=kind, device=given.get("device"))


def _new_tensor(call: Any, like: torch.Tensor, data: Any, **given: Any) -> Any:
    return _tensor_of(
        call, data, dtype=given.get("dtype") or like.dtype, device=given.get("device") or like.device
    )


def _power(call: Any, base: Any, exponent: Any) -> Any:
    """A power of a number is that of a tensor of its exponent's type; torch knows it by a constant base only."""
    if is_number(base) and isinstance(exponent, torch.Tensor):
        return torch.pow(_torch.scalar_tensor(base, dtype=exponent.dtype, device=exponent.device), exponent)
    return call(base, exponent)


def _raised(call: Any, base: torch.Tensor, exponent: Any) -> Any:
    """`x.pow_(number)`, which torch.export cannot make functional."""
    return base.copy_(torch.pow(base, exponent))


MADE: dict[str, Callable[..., Any]] = {
    "full": _filled,
    "as_tensor": _tensor_of,
    "new_tensor": _new_tensor,
    "pow": _power,
    "pow_": _raised,
    "__rpow__": lambda call, exponent, base: _power(call, base, exponent),  # pyright: ignore[reportUnknownLambdaType]
}
"""Functions that torch does not trace with a number of a group or of the device, by name."""

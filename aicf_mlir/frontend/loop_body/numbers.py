"""`loss.item()` in a loop body: a Python number that is known after each step, and values that the body computes from
it.

It may be returned, and computed with others as Python does, on the host after the step. If Python must know it at once,
to print it or to decide by it, the body is refused.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from aicf_mlir.frontend import source
from aicf_mlir.frontend.recorder import function_name
from aicf_mlir.frontend.source import quoted, trace_error

READ: dict[str, Callable[[torch.Tensor], Any]] = {
    "item": torch.Tensor.item,
    "numpy": lambda tensor: tensor.detach().cpu().numpy(),
}
"""The conversion of a tensor to a Python value, by the method's name."""

OPTIMIZERS = str(Path(torch.optim.__file__).parent)
NEEDED = "needs the value of a tensor at once; return it, and print it or decide by it outside"


@dataclass(frozen=True)
class ReadTensor:
    """A tensor that the body has read a number from."""

    tensor: torch.Tensor
    version: int
    copy: torch.Tensor
    """Its value then."""
    way: Callable[[torch.Tensor], Any]
    """The conversion."""

    @property
    def value(self) -> torch.Tensor:
        """The tensor, or the copy if the body has written to the tensor since."""
        return self.tensor if self.tensor._version == self.version else self.copy


Read = Callable[[int], Any]
"""The Python number that a read of the body returns, by its place among the reads."""


class Number:
    """A value that is known after each step: the number of a read, or `function` of other values and numbers."""

    def __init__(
        self,
        function: Callable[..., Any] | None,
        parts: tuple[Any, ...],
        refused: Callable[[Exception], None],
        tensor: Callable[[], torch.Tensor] | None = None,
        alive: str | None = None,
    ):
        """Take no `function` for a read, whose one part is its place."""
        self.function = function
        self.parts = parts
        self.refused = refused
        """Called with the error for a value that Python would have to know at once, since a library may catch the error."""
        self._tensor = tensor
        self._alive = alive
        """The forbidden use of a number that does not come from a tensor."""

    @property
    def places(self) -> tuple[int, ...]:
        """The reads from which it is computed."""
        if self.function is None:
            return self.parts
        return tuple(place for part in self.parts if isinstance(part, Number) for place in part.places)

    def compute(self, read: Read) -> Any:
        """Return its value after a step."""
        if self.function is None:
            return read(*self.parts)
        return self.function(
            *(part.compute(read) if isinstance(part, Number) else part for part in self.parts)
        )

    def tensor(self) -> torch.Tensor:
        """Return the tensor that it was read from, without a gradient, for use in a product of tensors, say."""
        tensor = None if self._tensor is None else self._tensor()
        if tensor is None or tensor.numel() != 1:
            self._refuse(
                "computes with a tensor and a number that it has made of others; compute it with tensors"
            )
        return tensor.detach().reshape(())

    def _refuse(self, what: str = NEEDED) -> NoReturn:
        what = self._alive or what
        location = source.here()
        error = trace_error(f"the loop body {what}{quoted(location)}", location)
        self.refused(error)
        raise error

    def _with(self, function: Callable[..., Any], *others: Any) -> Any:
        """Apply `function` to this and others, once they are known."""
        if any(isinstance(each, torch.Tensor) for each in others):
            (other,) = others
            return function(self.tensor(), other)
        return Number(function, (self, *others), self.refused)

    def __round__(self, digits: int | None = None) -> Any:
        return self._with(round, digits)


def _forward(function: Callable[..., Any]) -> Callable[..., Any]:
    def computed(self: Number, *others: Any) -> Any:
        return self._with(function, *others)  # pyright: ignore[reportPrivateUsage]

    return computed


def _backward(function: Callable[..., Any]) -> Callable[..., Any]:
    return _forward(partial(_reflected, function))


def _reflected(function: Callable[..., Any], a: Any, b: Any) -> Any:
    return function(b, a)


def _refused(self: Number, *_: Any) -> NoReturn:
    self._refuse()  # pyright: ignore[reportPrivateUsage]


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _function: Any = getattr(operator, f"__{_name}__")
    setattr(Number, f"__{_name}__", _forward(_function))
    setattr(Number, f"__r{_name}__", _backward(_function))
for _name in ("neg", "pos", "abs"):
    setattr(Number, f"__{_name}__", _forward(getattr(operator, f"__{_name}__")))
for _name in (
    *(
        "bool",
        "float",
        "int",
        "index",
        "complex",
        "str",
        "repr",
        "format",
        "hash",
        "iter",
        "len",
        "array",
        "contains",
    ),
    *("lt", "le", "gt", "ge", "eq", "ne", "trunc", "floor", "ceil", "reduce_ex"),
):
    setattr(Number, f"__{_name}__", _refused)


def as_list(tensor: torch.Tensor) -> Any:
    """Return `tensor.tolist()`, number by number."""
    return [as_list(each) for each in tensor] if tensor.dim() else tensor.item()


class NumberReads(TorchFunctionMode):
    """The tensors from which the code inside reads numbers, in the order in which a trace sees them: it runs no optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []

    def __enter__(self) -> NumberReads:
        setattr(torch.Tensor, "tolist", as_list)  # noqa: B010 - which C does unseen, and a trace element by element
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        del torch.Tensor.tolist
        super().__exit__(*error)  # pyright: ignore[reportUnknownMemberType]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        is_of_optimizer = sys._getframe(1).f_code.co_filename.startswith(OPTIMIZERS)  # pyright: ignore[reportPrivateUsage]
        if function_name(func) in READ and args and not is_of_optimizer:
            self.tensors.append(args[0].detach().clone())
        return func(*args, **(kwargs or {}))

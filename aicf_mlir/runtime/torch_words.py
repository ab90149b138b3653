"""The words of torch's state that csrc/bindings/torch_words.h reads correctly in this process; torch's own functions
return the others.

They are found by name in torch's libraries, and one is a place inside an object of the standard library of C++. So each
is tested: a word is used if it changes inside its context and has its old value after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from aicf_mlir import _C
from aicf_mlir.frontend.torch_state import Word, default_device
from aicf_mlir.runtime.watched import Handler, Watched

FUNCTION_MODES, DISPATCH_INCLUDED, DISPATCH_EXCLUDED, SAVED_TENSORS_HOOKS, ANOMALY, DEFAULT_DTYPE = range(6)
"""The numbers of the words."""

_torch: Any = torch._C  # pyright: ignore[reportPrivateUsage]

STANDS_FOR: dict[Callable[..., object], Sequence[int]] = {
    _torch._len_torch_function_stack: (FUNCTION_MODES,),
    _torch._len_torch_dispatch_stack: (DISPATCH_INCLUDED, DISPATCH_EXCLUDED),
    _torch._functorch.peek_interpreter_stack: (DISPATCH_INCLUDED, DISPATCH_EXCLUDED),
    _torch._autograd._top_saved_tensors_default_hooks: (SAVED_TENSORS_HOOKS,),
    torch.is_anomaly_enabled: (ANOMALY,),
    torch.get_default_dtype: (DEFAULT_DTYPE,),
}
"""The words that show if a torch function still returns the same."""


class _Transform(AbstractContextManager[None]):
    """A context inside a transform of torch.func."""

    def __enter__(self) -> None:
        _torch._functorch._grad_increment_nesting()

    def __exit__(self, *_: object) -> None:
        _torch._functorch._grad_decrement_nesting()


class _Anomaly(AbstractContextManager[None]):
    """A context like `torch.autograd.set_detect_anomaly(True)`, without its warning."""

    def __enter__(self) -> None:
        self._before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        torch.set_anomaly_enabled(not self._before[0], self._before[1])

    def __exit__(self, *_: object) -> None:
        torch.set_anomaly_enabled(*self._before)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


TRIED: dict[Callable[..., object], Callable[[], AbstractContextManager[Any]]] = {
    _torch._len_torch_function_stack: TorchFunctionMode,
    _torch._len_torch_dispatch_stack: TorchDispatchMode,
    _torch._functorch.peek_interpreter_stack: _Transform,
    _torch._autograd._top_saved_tensors_default_hooks: lambda: saved_tensors_hooks(_same, _same),
    torch.is_anomaly_enabled: _Anomaly,
}
"""The context in which each function returns another value."""

_NUMBERS = {torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.bfloat16: 15}
"""Torch's numbers of the dtypes that can be the default."""


def _is_seen(function: Callable[..., object]) -> bool:
    """True if the words of `function` match its result."""
    numbers = STANDS_FOR[function]

    def words() -> list[int | None]:
        found = _C.Watch.torch_words()
        return [found[number] for number in numbers]

    before = words()
    if None in before:
        return False
    if function is torch.get_default_dtype:
        return before == [_NUMBERS.get(torch.get_default_dtype())]
    with TRIED[function]():
        inside = words()
    return inside != before and words() == before


SEEN = frozenset(function for function in STANDS_FOR if _is_seen(function))
"""The functions whose words are right."""


def watch_settings(watched: Watched, settings: Sequence[Word], handler: Handler) -> None:
    """Watch for a torch function that returns another value: by words of torch if they are right."""
    words = dict.fromkeys(
        number for function, _ in settings if function in SEEN for number in STANDS_FOR[function]
    )
    if words:
        watched.torch_words(list(words), handler)
    for function, argument in settings:
        if function not in SEEN:
            watched.word(function, argument, handler)


def words_of(setting: Callable[[], object]) -> list[Word]:
    """Return the words that show that a setting is unchanged: the default device is that of a mode."""
    if setting is not default_device:
        return [(setting, None)]
    count: int = _torch._len_torch_function_stack()
    return [
        (_torch._len_torch_function_stack, None),
        *((_mode_at, i) for i in range(count)),
    ]


def _mode_at(index: int) -> object:
    """Return the function mode at that place of this thread's stack; None if it is shorter by now."""
    return _torch._get_function_stack_at(index) if index < _torch._len_torch_function_stack() else None

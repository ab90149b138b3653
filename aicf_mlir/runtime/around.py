"""The surroundings of a call of a step: modes, transforms and hooks of torch that act on every operation.

No compiled step runs them. It reads one word of each (`frontend/torch_state.py`) before anything changes.
"""

from __future__ import annotations

from typing import Any

from aicf_mlir.errors import GuardError
from aicf_mlir.frontend.torch_state import GLOBAL_HOOKS, SURROUNDINGS, global_hooks, surrounding
from aicf_mlir.runtime.torch_words import watch_settings
from aicf_mlir.runtime.watched import Watched


class Around:
    """The words of possible surroundings of a call of one step; it raises an error by name if one is active."""

    def __init__(self, name: str):
        self._name = name
        self.watched = Watched()
        words = {word: None for row in SURROUNDINGS for word in row.words}
        watch_settings(self.watched, list(words), self._refuse)
        for holder, name in (place for row in SURROUNDINGS for place in row.names):
            self.watched.namespace(holder, [name], self._refuse)
        empty: list[dict[Any, Any]] = []
        for holder, names in GLOBAL_HOOKS:
            self.watched.namespace(holder, names, self._refuse_hooks)
            for hooks in (holder[name] for name in names):
                if hooks:  # torch's own
                    self.watched.items(hooks, self._refuse_hooks)
                else:
                    empty.append(hooks)
        self.watched.empty(empty, self._refuse_hooks)

    def _refuse(self) -> None:
        if (found := surrounding()) is None:
            return
        row, what = found
        raise GuardError(
            f"{self._name}: called inside {row.what} ({what}), which a compiled step does not run; {row.instead}"
        )

    def _refuse_hooks(self) -> None:
        for kind, hook in global_hooks():
            raise GuardError(
                f"{self._name}: torch has global {kind} now ({getattr(hook, '__name__', type(hook).__name__)}), which a compiled"
                " step does not run; remove them"
            )

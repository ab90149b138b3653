"""Objects bound to memory at fixed addresses: copy, deepcopy and pickle cannot make a second one."""

from __future__ import annotations

from typing import Any

from aicf_mlir.errors import StateError


class NotCopied:
    """Refuses copy, deepcopy and pickle by name."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raise StateError."""
        what = getattr(self, "name", type(self).__name__)
        raise StateError(
            f"{what}: a compiled step, and what belongs to it, cannot be copied or pickled, since it is bound to the memory of"
            " its model; copy model and optimizer and compile those, or use save() and load()"
        )

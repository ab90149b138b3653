"""The code of a kernel: its text, and how that is launched."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """A part of a launch that starts when the one before is complete.

    On the CPU `function(operands, begin, end)` is called for ranges of `count` items that may run in parallel, of `grain` items
    each; a range never changes the results. On CUDA it is a grid of `count` blocks.
    """

    function: str
    count: int
    grain: int = 1
    """CPU: the least number of items that are worth a thread."""
    threads: int = 0
    """CUDA: of a block."""
    shared: int = 0
    """CUDA: bytes of dynamic shared memory of a block."""

    @property
    def row(self) -> tuple[str, int, int, int, int]:
        """What the runtime is told."""
        return self.function, self.count, self.grain, self.threads, self.shared


@dataclass(frozen=True)
class Code:
    """The text of a kernel, and how it is launched.

    Every function takes the addresses of the operands, the results and the workspace, in this order. On the CPU they are in an
    array that one pointer gives (`ptr operands, i64 begin, i64 end`). On CUDA each is an argument of its own, followed by the
    address of a status, or null: if the number there is not 0 the kernel does nothing.
    """

    source: str
    phases: tuple[Phase, ...]
    workspace: int = 0
    """Bytes, aligned to 256."""
    one_table: bool = False
    """CUDA: the addresses of operands and results are one argument, an array."""
    together: Phase | None = None
    """CUDA: one function that does what all phases do, for a device that holds its blocks at once: they wait for each other. Its
    last argument is the address of two numbers of 32 bits for each block, zeros when they are made.
    """

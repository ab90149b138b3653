"""What the graph of a captured step consists of, as the driver has it.

The runtime reads it back at each capture and refuses one that is not what the plan says: a node that no launch has made, another
function than a generated kernel is compiled to, no path from a launch to one that must be complete before it.
"""

from __future__ import annotations

from typing import NamedTuple

from aicf_mlir import _C
from aicf_mlir.runtime.program import Program


class CapturedNode(NamedTuple):
    """A node of the graph."""

    launch: str
    """The symbol of the launch in the plan that it belongs to; a launch may have several nodes, or none."""
    kernel: str
    """The kernel id of that launch."""
    kind: str
    """On CUDA "kernel", "copy", "fill"; on the CPU, whose graph is a list, "call"."""
    function: str
    """Of a kernel, as the driver names it, a library's too; of a call, the kernel with what it has chosen."""
    after: tuple[int, ...]
    """Positions of the nodes that it waits for."""


def captured_nodes(program: Program, executor: _C.Executor) -> list[CapturedNode]:
    """The nodes of the graph of one step, by launches. StateError where nothing is captured."""
    return [
        CapturedNode(
            program.launches[node["launch"]].get("symbol", ""),
            program.launches[node["launch"]]["kernel_id"],
            node["kind"],
            node["function"],
            node["after"],
        )
        for node in executor.graph()
    ]

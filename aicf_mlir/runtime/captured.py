"""The content of the graph of a captured step, as the driver has it.

The runtime reads it back at each capture and refuses a graph that differs from the plan. Differences are a node that no
launch has made, a function other than the compiled kernel, and no path from a launch to one that must wait for it.
"""

from __future__ import annotations

from typing import NamedTuple

from aicf_mlir import _C
from aicf_mlir.runtime.program import Program


class CapturedNode(NamedTuple):
    """A node of the graph."""

    launch: str
    """The symbol of the launch in the plan that it belongs to; a launch may have several nodes, or none.

    Empty for an event, by which a library tells itself that its work is done."""
    kernel: str
    """The kernel id of that launch."""
    kind: str
    """The kind: on CUDA "kernel", "copy", "fill" or "event"; on the CPU, whose graph is a list, "call"."""
    function: str
    """The name of a kernel's function in the driver, a library's too; for a call, the kernel with its chosen settings."""
    after: tuple[int, ...]
    """Positions of the nodes that it waits for."""


def captured_nodes(program: Program, executor: _C.Executor) -> list[CapturedNode]:
    """Return the nodes of the graph of one step, by launches. Raises StateError if nothing is captured."""
    names = dict(enumerate((each.get("symbol", ""), each["kernel_id"]) for each in program.launches))
    return [
        CapturedNode(*names.get(node["launch"], ("", "")), node["kind"], node["function"], node["after"])
        for node in executor.graph()
    ]

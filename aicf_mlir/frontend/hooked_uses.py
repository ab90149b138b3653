"""Whether all uses of a parameter with hooks are those that its hooks are told of."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from aicf_mlir.frontend.custom_gradients import ARRIVING, CUSTOM_GRADIENT
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.replaced_data import memory_of
from aicf_mlir.frontend.source import quoted, trace_error

OURS = (ARRIVING, CUSTOM_GRADIENT)
"""The ops of a function whose backward calls hooks."""


def expect_all_pass(exported: ExportedStep, hooked: Mapping[str, torch.Tensor]) -> None:
    """Raise TraceError if a use of a parameter with hooks is not that of its module: its gradient would not pass the hooks."""
    paths = {
        memory_of(each): path.removeprefix("model.") for path, each in hooked.items() if each.requires_grad
    }
    placeholders = exported.placeholders
    for node in exported.program.graph_module.graph.find_nodes(op="placeholder"):
        given = placeholders.get(node.name)
        if given is None or (path := paths.get(memory_of(given.tensor))) is None:
            continue
        for user in node.users:
            if user.target is not CUSTOM_GRADIENT and not all(each.target in OURS for each in user.users):
                location = exported.location(user)
                raise trace_error(
                    f"{path!r}, which has gradient hooks, is read other than as the attribute of its module"
                    f"{quoted(location)}, where its gradient would not pass them; remove the hooks",
                    location,
                )

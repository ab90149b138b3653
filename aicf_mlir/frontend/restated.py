"""Layers of torch.nn that read values or take memory in their `forward`, which a trace has not: the same as plain tensor code,
or an error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.modules import batchnorm

from aicf_mlir.frontend import source
from aicf_mlir.frontend.across_ranks import is_normalized, synchronized
from aicf_mlir.frontend.exchanging import exchanging
from aicf_mlir.frontend.source import trace_error

Forward = Callable[[Any, torch.Tensor], torch.Tensor]


def cumulative(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Normalize a batch, with `momentum=None`: the running statistics are the averages of those of all batches."""
    layer._check_input_dim(x)
    mean, variance = torch.zeros_like(layer.running_mean), torch.zeros_like(layer.running_var)
    result = F.batch_norm(x, mean, variance, layer.weight, layer.bias, True, 1.0, layer.eps)
    with torch.no_grad():
        layer.num_batches_tracked.add_(1)
        part = 1.0 / layer.num_batches_tracked.to(mean.dtype)
        for old, of_batch in ((layer.running_mean, mean), (layer.running_var, variance)):
            old.copy_(old * (1 - part) + of_batch * part)
    return result


def across_channels(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Raise TraceError: torch's sum over channels keeps the first one in it, and its gradient does not."""
    raise trace_error(
        "nn.CrossMapLRN2d is not supported: torch computes it by hand, and its gradient is that of another function;"
        " write nn.LocalResponseNorm",
        source.here(),
    )


def is_cumulative(layer: Any) -> bool:
    """True if a batch norm averages over all batches in this mode."""
    return layer.training and layer.track_running_stats and layer.momentum is None


RESTATED: Mapping[type, tuple[Callable[[Any], bool], Forward]] = {
    batchnorm._BatchNorm: (is_cumulative, cumulative),  # pyright: ignore[reportPrivateUsage]
    torch.nn.SyncBatchNorm: (is_normalized, synchronized),
    torch.nn.CrossMapLRN2d: (lambda layer: True, across_channels),
}
"""By class, which of its layers, and as what."""


def as_torchs(code: CodeType) -> CodeType:
    """Return code that counts as torch's own: what it reads of a layer is recorded, and guarded."""
    inner = tuple(as_torchs(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=batchnorm.__file__, co_consts=inner)


for function in (cumulative, is_cumulative, synchronized, is_normalized):
    function.__code__ = as_torchs(function.__code__)


@contextmanager
def restated() -> Generator[None]:
    """Trace a step with the restated layers, and with the exchanges of torch."""
    own: dict[type, Any] = {kind: vars(kind)["forward"] for kind in RESTATED}
    for kind, forward in own.items():
        kind.forward = choosing(forward, *RESTATED[kind])  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with exchanging():
            yield
    finally:
        for kind, forward in own.items():
            kind.forward = forward  # pyright: ignore[reportAttributeAccessIssue]


def choosing(own: Forward, applies: Callable[[Any], bool], other: Forward) -> Forward:
    """Return a forward that is `other` for the layers that `applies` names, else torch's `own`."""

    def forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
        return other(layer, x) if applies(layer) else own(layer, x)

    return forward

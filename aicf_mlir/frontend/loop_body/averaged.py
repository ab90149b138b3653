"""`AveragedModel.update_parameters` of torch with tensors: its first call copies, and the number of calls is a buffer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn

KNOWN = AveragedModel.update_parameters
"""Torch's own."""


@contextmanager
def written_with_tensors() -> Generator[None]:
    """Update averaged models inside without reading the number of earlier updates."""
    if AveragedModel.update_parameters is not KNOWN:
        yield
        return
    AveragedModel.update_parameters = update_parameters
    try:
        yield
    finally:
        AveragedModel.update_parameters = KNOWN


def update_parameters(self: Any, model: torch.nn.Module) -> None:
    """Update the parameters as torch does, for any number of calls before."""
    averaged, now = self.parameters(), model.parameters()
    if self.use_buffers:
        averaged, now = chain(self.module.parameters(), self.module.buffers()), chain(now, model.buffers())
    pairs = [(old.detach(), new.detach()) for old, new in zip(averaged, now, strict=False)]
    count, is_first = self.n_averaged, self.n_averaged == 0
    if self.multi_avg_fn is not None:
        alike: dict[torch.dtype, list[int]] = defaultdict(list)
        for number, (old, _) in enumerate(pairs):
            alike[old.dtype].append(number)
        means = [old.clone() for old, _ in pairs]
        for numbers in alike.values():
            self.multi_avg_fn([means[n] for n in numbers], [pairs[n][1] for n in numbers], count)
    else:
        average: Any = self.avg_fn or get_swa_avg_fn()
        means = [average(old, new, count) for old, new in pairs]
    for (old, new), mean in zip(pairs, means, strict=True):
        old.copy_(torch.where(is_first, new, mean))
    if not self.use_buffers:
        for old, new in zip(self.module.buffers(), model.buffers(), strict=True):
            old.detach().copy_(new.detach())
    self.n_averaged += 1

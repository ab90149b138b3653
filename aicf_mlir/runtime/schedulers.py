"""The state of LR schedulers, copied and put back: a loop body steps them, so they are a part of its step."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch.optim.lr_scheduler import LRScheduler


def states_of(schedulers: Sequence[LRScheduler]) -> list[dict[str, Any]]:
    """A copy of each `state_dict()`."""
    return [copy.deepcopy(scheduler.state_dict()) for scheduler in schedulers]


def put_states(schedulers: Sequence[LRScheduler], states: Sequence[dict[str, Any]]) -> None:
    """Load a copy of each state; what a scheduler counts in is counted in again."""
    for scheduler, state in zip(schedulers, states, strict=True):
        own = vars(scheduler)
        scheduler.load_state_dict(
            {
                key: Counter(value) if isinstance(own.get(key), Counter) else value
                for key, value in copy.deepcopy(state).items()
            }
        )

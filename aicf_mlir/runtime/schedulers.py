"""The state of LR schedulers, copied and put back: a loop body steps them, so they are a part of its step."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from torch.optim.lr_scheduler import LRScheduler


def states_of(schedulers: Sequence[LRScheduler]) -> list[dict[str, Any]]:
    """Return a copy of each `state_dict()`."""
    return [copy.deepcopy(scheduler.state_dict()) for scheduler in schedulers]


def put_states(schedulers: Sequence[LRScheduler], states: Sequence[dict[str, Any]]) -> None:
    """Load a copy of each state; each scheduler keeps the type in which it counts."""
    for scheduler, state in zip(schedulers, states, strict=True):
        scheduler.load_state_dict(counting(copy.deepcopy(state), scheduler.state_dict()))


def counting(state: Any, own: Any) -> Any:
    """Return `state`, with a Counter where `own` has one: a file knows dictionaries only."""
    if isinstance(own, Counter) and isinstance(state, dict):
        return Counter(cast(dict[object, int], state))
    if isinstance(own, dict) and isinstance(state, dict):
        mine = cast(dict[object, Any], own)
        return {key: counting(value, mine.get(key)) for key, value in cast(dict[object, Any], state).items()}
    if isinstance(own, list) and isinstance(state, list):
        items, others = cast(list[Any], state), cast(list[Any], own)
        if len(items) == len(others):
            return [counting(*pair) for pair in zip(items, others, strict=True)]
    return cast(Any, state)


def class_of(scheduler: LRScheduler) -> str:
    """Return the name of its class, and of the schedulers inside it; the classes of torch with their module.

    A user's class may come from a script or from a module, depending on how it is run.
    """
    kind = type(scheduler)
    name = f"{kind.__module__}.{kind.__qualname__}" if is_of_torch(scheduler) else kind.__qualname__
    inner = ", ".join(map(class_of, parts_of(scheduler)))
    return f"{name}({inner})" if inner else name


def is_of_torch(scheduler: LRScheduler) -> bool:
    """True if torch has written its class."""
    return type(scheduler).__module__ == LRScheduler.__module__


def parts_of(scheduler: LRScheduler) -> Sequence[LRScheduler]:
    """Return the schedulers that it consists of."""
    found: object = vars(scheduler).get("_schedulers", ())
    items = cast(Sequence[object], found) if isinstance(found, list | tuple) else ()
    return [item for item in items if isinstance(item, LRScheduler)]

"""A check that a state fits an LR scheduler: its keys, the kind of each value, and a step of a copy. Nothing changes.

torch's `load_state_dict` takes any dictionary: StepLR would run on with the numbers of CosineAnnealingLR.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, ReduceLROnPlateau

from aicf_mlir.runtime.description import is_finite
from aicf_mlir.runtime.schedulers import counting, is_of_torch, parts_of

MAY_BE_INFINITE = ("best", "mode_worse")
"""The entries of ReduceLROnPlateau that begin with infinity."""

OF_USERS_OBJECTS = ("lr_lambdas", "_scale_fn_custom")
"""Entries with the attributes of objects that torch's schedulers call."""


def expect_fit(
    scheduler: LRScheduler, state: object, settings: Mapping[int, Sequence[Mapping[str, Any]]]
) -> None:
    """Raise ValueError, with the reason, for a state that does not belong to this scheduler.

    `settings` has, by the id of each optimizer, the future content of its param groups.
    """
    own = scheduler.state_dict()
    if not isinstance(state, dict):
        raise ValueError(f"it is {_shown(state)}, expected a dictionary")
    state = cast(dict[str, Any], state)
    _expect_keys(scheduler, state, own)
    parts = parts_of(scheduler)
    for key, value in own.items():
        if parts and key == "_schedulers":
            continue
        _expect_kind(key, state[key], value, deep=is_of_torch(scheduler))
    if parts:
        inner: object = state["_schedulers"]
        if not isinstance(inner, list) or len(cast(list[object], inner)) != len(parts):
            raise ValueError(f"_schedulers: expected the states of {len(parts)}")
        for part, each in zip(parts, cast(list[object], inner), strict=True):
            expect_fit(part, each, settings)
    if _is_plain(scheduler):
        _try_step(scheduler, state, settings[id(scheduler.optimizer)])


def _expect_keys(scheduler: LRScheduler, state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Check the keys. A scheduler of the user's may get attributes while it runs, so its state may have more."""
    if own.keys() - state.keys() or (is_of_torch(scheduler) and state.keys() - own.keys()):
        raise ValueError(
            f"it has {', '.join(sorted(map(str, state)))}, and {type(scheduler).__name__} has {', '.join(map(str, sorted(own)))}"
        )


def _expect_kind(path: str, theirs: Any, own: Any, deep: bool) -> None:
    """Check the kinds of values; `deep` also checks numbers and containers, which user objects may fill differently at
    another time.
    """
    name = path.partition("[")[0]
    if isinstance(own, Counter):
        is_count = isinstance(theirs, dict) and all(
            type(key) is int and type(count) is int and count >= 0
            for key, count in cast(dict[Any, Any], theirs).items()
        )
        if not is_count:
            raise ValueError(
                f"{path} is {_shown(cast(object, theirs))}, expected how often which epoch is met"
            )
    elif _kind(theirs) != _kind(own) and not _is_unset(theirs, own) and not _is_unset(own, theirs):
        raise ValueError(f"{path} is {_shown(theirs)}, expected {_kind(own)}")
    elif not deep or (name in OF_USERS_OBJECTS and isinstance(own, dict)):
        return
    elif _kind(theirs) == "a number":
        if not is_finite(theirs) and not (name in MAY_BE_INFINITE and not _is_nan(theirs)):
            raise ValueError(f"{path} is {theirs}, expected a finite number")
    elif isinstance(own, list | tuple):
        mine, items = cast(Sequence[Any], own), cast(Sequence[Any], theirs)
        if len(mine) != len(items):
            raise ValueError(f"{path} has {len(items)} members, expected {len(mine)}")
        for index, pair in enumerate(zip(items, mine, strict=True)):
            _expect_kind(f"{path}[{index}]", *pair, deep)
    elif isinstance(own, dict):
        if theirs.keys() != cast(dict[Any, Any], own).keys():
            keys = ", ".join(map(str, cast(dict[object, Any], own)))
            raise ValueError(f"{path} is {_shown(theirs)}, expected the keys {keys}")
        for key, value in cast(dict[Any, Any], own).items():
            _expect_kind(f"{path}[{key!r}]", theirs[key], value, deep)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a flag"
    if isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        return "a number"
    rows = (
        (type(None), "nothing"),
        (str, "a text"),
        (list, "a list"),
        (tuple, "a tuple"),
        (dict, "a dictionary"),
    )
    return next((name for kind, name in rows if isinstance(value, kind)), "a thing of another kind")


def _is_unset(one: object, other: object) -> bool:
    """True if one is None and the other a plain value: it was or will be set while the scheduler runs."""
    return one is None and _kind(other) in ("a flag", "a number", "a text")


def _is_nan(value: Any) -> bool:
    return math.isnan(float(value))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _is_plain(scheduler: LRScheduler) -> bool:
    """True if a step runs code of torch alone, and needs no value."""
    own = vars(scheduler)
    return (
        is_of_torch(scheduler)
        and not isinstance(scheduler, ReduceLROnPlateau)
        and "lr_lambdas" not in own
        and own.get("_scale_fn_custom") is None
        and all(map(_is_plain, parts_of(scheduler)))
    )


def _try_step(scheduler: LRScheduler, state: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> None:
    """Load into a copy, over a stand-in of the optimizer, and let it set one rate."""
    stand_in = object.__new__(type(scheduler.optimizer))
    vars(stand_in).update(vars(scheduler.optimizer))
    vars(stand_in)["param_groups"] = [
        {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in group.items()} for group in groups
    ]
    twin = _twin(scheduler, stand_in)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning that no step of the optimizer came before
            twin.load_state_dict(counting(copy.deepcopy(dict(state)), scheduler.state_dict()))
            twin.step()
    except Exception as error:  # noqa: BLE001  # whatever torch's formulas raise for such numbers
        if not _is_over(twin):
            raise ValueError(f"its next step would fail: {type(error).__name__}: {error}") from None
    for group in stand_in.param_groups:
        if not is_finite(group["lr"]):
            raise ValueError(f"its next step would set the rate {group['lr']}")


def _twin(scheduler: LRScheduler, optimizer: Optimizer) -> LRScheduler:
    """Return a copy that steps another optimizer."""
    twin = copy.copy(scheduler)
    for key, value in vars(scheduler).items():
        if key == "optimizer":
            vars(twin)[key] = optimizer
        elif key == "_schedulers":
            vars(twin)[key] = [_twin(part, optimizer) for part in value]
        elif isinstance(value, list | dict):
            vars(twin)[key] = copy.deepcopy(cast(object, value))
    return twin


def _is_over(scheduler: LRScheduler) -> bool:
    """True if a schedule has ended, so that torch refuses a further step."""
    return (isinstance(scheduler, OneCycleLR) and scheduler.last_epoch >= scheduler.total_steps) or any(
        map(_is_over, parts_of(scheduler))
    )

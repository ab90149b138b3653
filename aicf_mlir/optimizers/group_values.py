"""Values of a param group as torch takes them: real numbers, or tensors that hold one."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from aicf_mlir.errors import BindError
from aicf_mlir.optimizers.rule import UpdateRule

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeIs


def real(value: object, name: str) -> float:
    """`value` as a float; BindError, with `name`, for anything but a real number or a tensor of one element."""
    number = value
    if _is_tensor(value) and value.numel() == 1 and not value.is_meta:
        number = cast(object, value.item())
    if not isinstance(number, Real):
        raise BindError(f"{name} must be a real number or a tensor of one, got {_shown(value)}")
    try:
        result = float(number)
    except OverflowError:
        raise BindError(f"{name} must be within the range of a float, got {_shown(value)}") from None
    if math.isnan(result):
        raise BindError(f"{name} is nan, which would make every parameter nan; give it a number")
    return result


def hyperparameter(group: Mapping[str, Any], key: str) -> float:
    """The number `key` of a param group."""
    return real(_entry(group, key), f"the optimizer's {key}")


def numbers(group: Mapping[str, Any], key: str, places: Sequence[int]) -> tuple[float, ...]:
    """The numbers at these places of the entry `key` of a param group, such as betas."""
    value: object = _entry(group, key)
    items = cast(Sequence[object], value) if isinstance(value, (tuple, list)) else ()
    if (places and len(items) <= max(places)) or (list(places) == [0, 1] and len(items) != 2):
        count = "two" if len(places) == 2 else max(places) + 1
        raise BindError(f"the optimizer's {key} must be {count} numbers, got {_shown(_entry(group, key))}")
    return tuple(real(items[place], f"the optimizer's {key}[{place}]") for place in places)


def flag(group: Mapping[str, Any], key: str) -> bool:
    """The switch `key` of a param group; like torch, by its truth."""
    return bool(_entry(group, key))


def hyperparameters(rule: type[UpdateRule], group: Mapping[str, Any]) -> dict[str, float]:
    """The settings of a param group, by the names of the hyperparameters that they are."""
    values: dict[str, float] = {}
    for setting in rule.SETTINGS:
        if setting.members is None:
            values[setting.slots[0]] = hyperparameter(group, setting.key)
        else:
            found = numbers(group, setting.key, list(setting.members.values()))
            values |= zip(setting.slots, found, strict=True)
    return values


def switches(
    rule: type[UpdateRule], group: Mapping[str, Any], fixed: Collection[str] = ()
) -> dict[str, bool]:
    """The flags that a param group switches on or off, except those that are `fixed`."""
    settings = {setting.key for setting in rule.SETTINGS}
    values: dict[str, bool] = {}
    for row in rule.FLAGS:
        if row.name in fixed:
            continue
        if row.key in settings:
            values[row.name] = hyperparameter(group, row.key) != 0
        else:
            values[row.name] = (row.key in group or not row.optional) and flag(group, row.key)
    return values


def _entry(group: Mapping[str, Any], key: str) -> object:
    if key not in group:
        raise BindError(f"a param group of the optimizer has no {key!r}; it has {', '.join(map(str, group))}")
    return group[key]


def _is_tensor(value: object) -> TypeIs[torch.Tensor]:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def _shown(value: object) -> str:
    if _is_tensor(value):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    text = repr(value)
    return f"{text if len(text) <= 40 else text[:39] + '…'} ({type(value).__name__})"

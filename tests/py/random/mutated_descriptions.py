"""Hostile descriptions: that of a good checkpoint with some random changes, under a right digest."""

from __future__ import annotations

import copy
import random
from typing import Any

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 1 << 62, -(1 << 63), 1 << 64, 10**400, 0.0, -1.0, 0.5, 1e308, -1e-300,
    "", "x", "lr", "inf", "nan", "0.weight", "setting/0", "param/0.weight", "\ud800", "torch.optim.lr_scheduler.StepLR",
    [], {}, [[]], [None], [1, 2], {"items": {}}, {"items": []}, {"items": 3}, {"tuple": []}, {"tuple": 3}, {"tuple": {"a": 1}},
    {"float": "nan"}, {"float": "inf"}, {"float": "-inf"}, {"float": 3}, {"float": "1e999"}, {"float": []},
    {"tensor": "setting/0"}, {"tensor": "param/0.weight"}, {"tensor": "no"}, {"tensor": []}, {"tensor": None},
    {"pairs": []}, {"pairs": [[1, 2]]}, {"pairs": [[1, 2], [1, 3]]}, {"pairs": [["a", 1]]}, {"pairs": [[[], 1]]},
    {"pairs": [[1]]}, {"pairs": [[-1, -1]]}, {"what": 1}, {"items": {}, "tuple": []},
]  # fmt: skip
"""What may stand anywhere instead of what is there."""

KEYS = [
    "lr",
    "initial_lr",
    "betas",
    "params",
    "step",
    "last_epoch",
    "optimizer",
    "__class__",
    "",
    "items",
    "float",
    "x",
]


def nested(depth: int) -> Any:
    """A value in so many lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container with each of its keys, to the bottom."""
    keys = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def mutated(description: dict[str, Any], seed: int) -> dict[str, Any]:
    """One to three changes, which `seed` decides."""
    choose = random.Random(seed)
    changed = copy.deepcopy(description)
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        every = places(changed)
        if not every:
            break
        at, key = choose.choice(every)
        match choose.randrange(8):
            case 0 | 1 | 2:
                at[key] = copy.deepcopy(choose.choice(VALUES))
            case 3:
                del at[key]
            case 4:  # what stands elsewhere
                other, place = choose.choice(every)
                at[key] = copy.deepcopy(other[place])
            case 5 if isinstance(at, list):
                at.insert(choose.randrange(len(at) + 1), copy.deepcopy(choose.choice([at[key], *VALUES])))
            case 5 | 6 if isinstance(at, dict):
                at[choose.choice(KEYS)] = copy.deepcopy(choose.choice([at[key], *VALUES]))
            case 7 if choose.random() < 0.2:
                at[key] = nested(choose.choice((10, 40, 300, 900)))
                break
            case _:
                if isinstance(at[key], int | float) and not isinstance(at[key], bool):
                    at[key] = at[key] * choose.choice((-1, 0, 2, 1e300, -1e-9))
                else:
                    at[key] = copy.deepcopy(choose.choice(VALUES))
    return changed

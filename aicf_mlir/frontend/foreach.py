"""The meaning of `torch._foreach_add_(xs, ys)`: `x.add_(y)` for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

FOREACH = "_foreach_"
"""The prefix of the names of these functions."""
OF_NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}
"""The functions of one tensor that do the same with a number, where the tensor's own function takes only tensors."""


def one_by_one(called: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return the loop that torch's function `called`, `plain`, stands for; `plain` itself if a tensor has no function
    of that name.
    """
    of_torch: Any = torch
    name = called.removeprefix(FOREACH)
    stem = name.removesuffix("_")
    single: Any = {"norm": of_torch.linalg.vector_norm, "copy_": torch.Tensor.copy_}.get(name)
    single = single or getattr(of_torch, stem, None) or getattr(torch.Tensor, stem, None)
    if single is None:
        return plain
    of_number: Any = getattr(of_torch, OF_NUMBERS[stem]) if stem in OF_NUMBERS else single

    def function(*given: Any, **options: Any) -> Any:
        if stem in ("addcmul", "addcdiv") and len(given) == 4:
            given, options = given[:3], {"value": given[3]}
        count = next(len(cast("list[Any]", each)) for each in given if isinstance(each, (list, tuple)))

        def at(each: Any, i: int) -> Any:
            return cast("list[Any]", each)[i] if isinstance(each, (list, tuple)) else each

        def one(*own: Any, **named: Any) -> Any:
            taken = single if all(isinstance(each, torch.Tensor) for each in own) else of_number
            return taken(*own, **named)

        made: list[Any] = [
            one(*(at(each, i) for each in given), **{key: at(each, i) for key, each in options.items()})
            for i in range(count)
        ]
        if name == stem:
            return made
        for target, value in zip(given[0], made, strict=True):
            if target is not value:
                target.copy_(value)
        return None

    return function

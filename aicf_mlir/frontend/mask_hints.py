"""torch.nn's encoders and decoders test if a mask is the causal one, which a trace without values cannot answer."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch.nn.modules.transformer as layers

ASKING = "_detect_is_causal_mask"
"""The function of torch.nn that compares the mask with a causal one; if it does not exist, nothing calls it."""


def given_hint(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """True if the caller gave this hint; without it the mask is used as any other, which computes the same."""
    del mask, size
    return is_causal is True


@contextmanager
def without_mask_hints() -> Generator[None]:
    """Trace a step without reading the values of masks."""
    held: Any = vars(layers)
    asking = held.get(ASKING)
    if asking is not None:
        held[ASKING] = given_hint
    try:
        yield
    finally:
        if asking is not None:
            held[ASKING] = asking

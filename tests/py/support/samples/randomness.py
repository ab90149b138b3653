"""Samples of the ops that draw random numbers, beside the generator in NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from philox import kept, kept_in_tiles, words_of

from aicf_mlir.dialects import nn
from samples.sample import Sample, value_by_index

SEED, STEP, SITE = -7, 3, 2
FILL = value_by_index(SEED, STEP)
RANDOM = "2xi64"


def randomness() -> list[Sample]:
    """Dropout of several shapes and probabilities; each law in each type; the count."""
    return [*dropouts(), *draws(), Sample("count", (RANDOM,), nn.NextRandomOp, following, {0: FILL})]


def following(random: Any) -> Any:
    """One step more."""
    return random + torch.tensor([0, 1])


def dropouts() -> list[Sample]:
    """A mask, and what it is divided by."""
    samples: list[Sample] = []
    for shape, p in (((), 0.5), ((7,), 0.25), ((3, 5), 0.0), ((2, 3, 2, 3), 0.9), ((4, 5), 1.0)):

        def reference(x: Any, _: Any, shape: Sequence[int] = shape, p: float = p) -> Any:
            return x * torch.from_numpy(kept(SEED, STEP, SITE, shape, p)) * (1 / (1 - p) if p < 1 else 0.0)

        samples.append(
            Sample(
                f"{len(shape)}-{p}",
                ("x".join([*map(str, shape), "f32"]), RANDOM),
                lambda x, random, p=p: nn.DropoutOp(x, random, p, SITE),
                reference,
                {1: FILL},
            )
        )
    for shape, p in (((20, 35), 0.5), ((2, 3, 16, 9), 0.5), ((3, 5), 1.0), ((9, 17), 2.0**-17)):

        def in_tiles(x: Any, _: Any, shape: Sequence[int] = shape, p: float = p) -> Any:
            scale = 1 / (1 - p) if p < 1 else 0.0
            return x * torch.from_numpy(kept_in_tiles(SEED, STEP, SITE, shape, p)) * scale

        types = ("x".join([*map(str, shape), "f32"]), RANDOM)
        build = partial(nn.DropoutOp, p=p, site=SITE, tiled=True)
        samples.append(Sample(f"{len(shape)}-{p} in tiles", types, build, in_tiles, {1: FILL}))
    return samples


def draws() -> list[Sample]:
    """The words, and what is made of them."""
    samples: list[Sample] = []
    shape = (3, 7)
    for law, element in [("word", "i64"), *((law, e) for law in LAWS for e in DIGITS)]:

        def reference(_: Any, law: str = law, element: str = element) -> Any:
            words = words_of(SEED, STEP, SITE, shape)
            if law == "word":
                return torch.from_numpy(words[0].astype(np.int64))
            first, second = (fraction(words[i : i + 2], element, law) for i in (0, 2))
            if law == "uniform":
                return torch.from_numpy(first)
            if law == "exponential":
                return torch.from_numpy(-np.log1p(-first))
            last = 2.0 ** -(53 if element == "f64" else 24)
            return torch.from_numpy(np.sqrt(-2 * np.log(first + last)) * np.cos(2 * math.pi * second))

        samples.append(
            Sample(
                f"{law}-{element}",
                (RANDOM,),
                lambda random, law=law, element=element: nn.RandomOp(random, law, element, shape, SITE),
                reference,
                {0: FILL},
                units=4.0,
            )
        )
    return samples


LAWS = ("uniform", "normal", "exponential")
DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


def fraction(words: Sequence[Any], element: str, law: str) -> Any:
    """A number in [0, 1) of two words."""
    if element == "f64":
        return ((words[0] >> np.uint64(5)) * 2.0**26 + (words[1] >> np.uint64(6))) * 2.0**-53
    digits = DIGITS[element] if law == "uniform" else 24
    return (words[0] >> np.uint64(32 - digits)) * 2.0**-digits

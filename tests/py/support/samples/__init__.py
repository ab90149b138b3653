"""One row or more for every op of nn and optim: operand types, how to build the op, and what torch computes.

Shapes are ragged, of rank 0 to 4, and broadcast where the op does; rows called `special` run through NaN,
infinities, signed zeros and the ends of the range. Everything that sweeps over ops sweeps over these rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from samples import (
    attention,
    checks,
    collectives,
    convolutions,
    elementwise,
    indexing,
    losses,
    pointwise,
    randomness,
    rows,
    slices,
    structured,
    updates,
    windows,
)
from samples.sample import Sample

__all__ = ["NN_SAMPLES", "OPTIM_SAMPLES", "SAMPLES", "Sample", "sweep"]

NN_SAMPLES: Sequence[Sample] = (
    *elementwise.elementwise(),
    *elementwise.activations(),
    *pointwise.pointwise(),
    *structured.products(),
    *structured.shapes(),
    *structured.reductions(),
    *rows.reductions(),
    *rows.rows(),
    *slices.slices(),
    *indexing.indexing(),
    *windows.windows(),
    *convolutions.convolutions(),
    *attention.attention(),
    *attention.with_dropout(),
    *randomness.randomness(),
    *losses.mse(),
    *losses.cross_entropy(),
    *checks.check_index(),
    *checks.check_finite(),
    *checks.check_value(),
    *checks.check_ranks(),
    *collectives.all_gather(),
    *collectives.all_gather_status(),
    *collectives.all_to_all(),
    *collectives.all_reduce(),
    *collectives.all_reduce_status(),
)

OPTIM_SAMPLES: Sequence[Sample] = (
    *updates.advance(),
    *updates.sgd(),
    *updates.adam(),
    *updates.scalars(),
    *updates.updates(),
)

SAMPLES: Sequence[Sample] = (*NN_SAMPLES, *OPTIM_SAMPLES)


def sweep(samples: Sequence[Sample]) -> pytest.MarkDecorator:
    """Run a test once for each sample, as `sample`."""
    names = [f"{sample.op_type().name}-{sample.name}" for sample in samples]
    return pytest.mark.parametrize("sample", samples, ids=names)

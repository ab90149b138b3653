"""Samples of nn as cases: each that lowers to one launch of its operands is a call of that kernel op."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from samples import NN_SAMPLES

from kernel_cases.case import Case, Maker


def of_samples(make: Maker, op: str) -> Iterator[Case]:
    """The samples that become a launch of `op`, with `make.dtype` in the place of f32."""
    yield from _by_op(make.dtype).get(op, ())


@cache
def _by_op(dtype: str) -> Mapping[str, list[Case]]:
    found: defaultdict[str, list[Case]] = defaultdict(list)
    for sample in NN_SAMPLES:
        if sample.in_range and (launch := sample.launch(dtype)) is not None:
            label = f"sample {sample.op_type().name} {sample.name}"
            arrays, outputs = sample.values(dtype), launch.output_specs
            each = not sample.smooth
            judged: dict[str, Any] = {"each": each, "scale": 1.0, "inner_units": sample.inner_units}
            judged["inner_type"] = dtype if sample.rounds_as_operands else None
            case = Case(label, arrays, outputs, launch.attrs, launch.counts, **judged)
            found[launch.op_name].append(case)
    return found

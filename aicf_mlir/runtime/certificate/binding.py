"""The plan as text, checked against its own rules and against the bound objects."""

from __future__ import annotations

import numpy as np
from xdsl.utils.exceptions import DiagnosticException

from aicf_mlir.errors import AicfError
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, round_to
from aicf_mlir.ir.diagnostics import failing_op
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.runtime.certificate.report import FailedCheck
from aicf_mlir.runtime.certificate.subject import Subject, place_of


def check_plan(subject: Subject) -> list[FailedCheck]:
    """Check that the plan verifies: operands, addresses, order, lifetimes, work in place."""
    try:
        verify_module(subject.stages["plan"])
    except (DiagnosticException, AicfError) as error:
        op = failing_op(error)
        index = next((i for i, launch in enumerate(subject.launch_ops) if launch is op), None)
        culprit = None if index is None else subject.culprit(index)
        return [FailedCheck("plan", f"the plan is refused: {error}", culprit)]
    return []


def check_binding(subject: Subject) -> list[FailedCheck]:
    """Check that arenas, slots, launches and constants match the plan's text."""
    text, bound = subject.text, subject.program
    findings: list[FailedCheck] = []
    for index, (wanted, got) in enumerate(zip(text.launches, bound.launches, strict=False)):
        for key, value in wanted.items():
            if key != "origin" and got[key] != value:  # a text may be without locations
                message = f"a launch is bound with {key} = {got[key]}, the plan says {value}"
                findings.append(FailedCheck("binding", message, subject.culprit(index)))
    if len(text.launches) != len(bound.launches):
        findings.append(
            FailedCheck(
                "binding", f"{len(bound.launches)} launches are bound, the plan has {len(text.launches)}"
            )
        )
    if text.slots != bound.slots:
        names = sorted(
            k for k in text.slots.keys() | bound.slots.keys() if text.slots.get(k) != bound.slots.get(k)
        )
        findings.append(
            FailedCheck("binding", f"slots are bound otherwise than the plan says: {', '.join(names)}")
        )
    for symbol, slot in bound.slots.items():
        if slot.value is None:
            continue
        wanted = np.full(slot.shape, round_to(np.asarray(slot.value), slot.dtype), NUMPY_TYPES[slot.dtype])
        if subject.read(place_of(slot)).tobytes() != wanted.tobytes():
            findings.append(FailedCheck("binding", f"the constant @{symbol} is not {slot.value} in memory"))
    return findings

"""The certificate of a captured step: does it run the planned launches, the captured graph, and the model's meaning?

Everything happens on the arenas of the step, which end as they began, even after an error. Neither `opt.state` nor a
param group is touched. Ctrl-C is obeyed when all memory is back.
"""

from __future__ import annotations

from collections.abc import Sequence

from aicf_mlir.errors import BindError
from aicf_mlir.host.interrupts import held
from aicf_mlir.runtime.certificate.binding import check_binding, check_plan
from aicf_mlir.runtime.certificate.reference import check_reference
from aicf_mlir.runtime.certificate.replay import check_memory, check_replay
from aicf_mlir.runtime.certificate.report import CHECKS, Certificate, Culprit, FailedCheck
from aicf_mlir.runtime.certificate.subject import Subject

__all__ = ["CHECKS", "Certificate", "Culprit", "FailedCheck", "Subject", "certify", "check_request"]


def check_request(verify: object, steps: object) -> None:
    """Raise BindError for arguments of `capture` that request no certificate."""
    if verify != "bitwise":
        raise BindError(f'capture(verify=…) takes "bitwise" or None, got {verify!r}')
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise BindError(f"capture(steps=…) needs a positive integer, got {steps!r}")


def certify(
    subject: Subject, steps: int, found: Sequence[FailedCheck] = (), uncompared: str | None = None
) -> Certificate:
    """Run every check on a captured step whose inputs are loaded; its memory ends as it began.

    `found` is the result of the comparison with torch, which needs the user's objects and comes first. `uncompared` is
    the reason if there was none.
    """
    findings = [*found, *check_plan(subject), *check_binding(subject)]
    with held():
        start = subject.save()
        try:
            findings += check_replay(subject, start, steps)
            findings += check_memory(subject, start)
            findings += check_reference(subject, start, steps)
        finally:
            subject.restore(start)
    order = list(CHECKS)
    return Certificate(
        subject.name,
        subject.device,
        len(subject.program.launches),
        steps,
        sum(nbytes for _, _, nbytes in subject.compared()),
        tuple(sorted(findings, key=lambda finding: order.index(finding.check))),
        None if subject.plan_file is None else subject.plan_file.told,
        uncompared,
    )

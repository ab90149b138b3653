"""The content of a certificate: for each check, that it holds, or the finding and its launch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

CHECKS: dict[str, str] = {
    "plan": "the plan obeys every rule of plans",
    "binding": "what is bound is what the plan's text says",
    "replay": "replays equal eager steps in every byte, whatever temporary memory held",
    "kernels": "the kernels that ran are those that were planned",
    "memory": "a step writes nothing but what its launches name",
    "reference": "a step computes what the model says, with values of the hyperparameters that it has not seen",
    "torch": "a step changes what torch's own eager step changes, and by as much",
}
"""The checks, in this order."""


@dataclass(frozen=True)
class Culprit:
    """The launch that causes a finding."""

    launch: str
    """The launch's symbol in the plan."""
    op: str
    kernel_id: str
    source: str
    """The user's file and line, or "no source line"."""

    def __str__(self) -> str:
        return f'@{self.launch} {self.op} "{self.kernel_id}" at {self.source}'


@dataclass(frozen=True)
class FailedCheck:
    """One check that does not hold."""

    check: str
    message: str
    culprit: Culprit | None = None
    """The first launch that differs, if a single one shows it."""

    def __str__(self) -> str:
        return f"{self.message}\n      first at {self.culprit}" if self.culprit else self.message


@dataclass(frozen=True)
class Certificate:
    """The result of `capture(batch, verify="bitwise")`. It prints as text; `to_json()` is for machines."""

    name: str
    device: str
    launches: int
    steps: int
    compared_bytes: int
    """The number of compared bytes per step: parameters, optimizer state, host_scalar slots, buffers, gradients and outputs."""
    findings: tuple[FailedCheck, ...]
    plan: str | None = None
    """The file of the plan, and its differences from the step's own; None for the step's own."""
    uncompared: str | None = None
    """The reason why the check "torch" was not made; None if it was."""

    @property
    def equal(self) -> bool:
        """True if every check holds."""
        return not self.findings

    def __bool__(self) -> bool:
        """Return `equal`: asserting a certificate tests it."""
        return self.equal

    def of(self, check: str) -> list[FailedCheck]:
        """Return the findings of one of `CHECKS`."""
        return [finding for finding in self.findings if finding.check == check]

    def to_text(self) -> str:
        """Return a line for each check, and its findings below it."""
        verdict = "equal" if self.equal else "DIFFERS"
        lines = [
            f"{self.name} on {self.device}: {verdict}"
            f" ({self.launches} launches, {self.steps} steps, {self.compared_bytes:,} bytes compared after each)"
        ]
        lines += [] if self.plan is None else [f"  {self.plan}"]
        for check, meaning in CHECKS.items():
            found = self.of(check)
            is_left_out = check == "torch" and self.uncompared is not None
            verdict = "FAILS" if found else "-" if is_left_out else "ok"
            lines.append(f"  {verdict:<6}{check:<10} {meaning}")
            lines += [f"      not compared: {self.uncompared}"] if is_left_out else []
            lines += [f"      {finding}" for finding in found]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the same as JSON: {name, device, launches, steps, compared_bytes, equal, plan, uncompared, findings}.

        A finding is {check, message, culprit}; `plan` is null if the plan is the step's own.
        """
        return json.dumps({**asdict(self), "equal": self.equal})

    def __str__(self) -> str:
        return self.to_text()

"""The result of a comparison with torch: each tensor with its error, the error that rounding allows, and the first
layer that differs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

SHOWN = 4
"""The number of differences in a message."""


@dataclass(frozen=True)
class Difference:
    """One tensor after one step, compiled and eager."""

    step: int
    """The step, counted from 1."""
    name: str
    """The name, such as "loss", "parameter '0.weight'", "state 'exp_avg' of '0.weight'"."""
    error: float
    """The root mean square of the difference, or infinity if NaN or infinity are at other places."""
    allowed: float
    """The error that rounding explains, in the same unit."""
    why: str = ""
    """The reason for a difference; empty for a tensor that agrees."""

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


@dataclass(frozen=True)
class Comparison:
    """The result of `step.check(batch)`. It is true if every tensor agrees with torch, and prints as text."""

    name: str
    device: str
    steps: int
    rows: tuple[Difference, ...]
    """Every tensor of every step."""
    layer: str | None = None
    """The first layer that differs, in the order in which the model runs."""
    exact: bool = False
    """True if torch computed in float64 on the host."""

    @property
    def differences(self) -> list[Difference]:
        """The tensors that differ by more than rounding explains."""
        return [row for row in self.rows if row.why]

    @property
    def equal(self) -> bool:
        """True if every tensor agrees."""
        return not self.differences

    def __bool__(self) -> bool:
        return self.equal

    @property
    def message(self) -> str:
        """Return the differences in one sentence; empty if all tensors agree."""
        if self.equal:
            return ""
        first = self.differences[0].step
        rows = [row for row in self.differences if row.step == first]
        shown = "; ".join(str(row) for row in rows[:SHOWN])
        more = f"; {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
        where = f"; the first layer that differs is {self.layer}" if self.layer else ""
        return f"step {first} is not what torch does: {shown}{more}{where}"

    def to_text(self) -> str:
        """Return the verdict, then a line for each tensor: its largest error over the steps, and the allowed error."""
        reference = "torch in float64 on the host" if self.exact else "torch eager"
        lines = [f"{self.name} on {self.device}, {self.steps} steps beside {reference}:"]
        lines[0] += " equal" if self.equal else " DIFFERS"
        worst: dict[str, Difference] = {}
        for row in self.rows:
            if (other := worst.get(row.name)) is None or _excess(row) > _excess(other):
                worst[row.name] = row
        width = max((len(name) for name in worst), default=0)
        for name, row in worst.items():
            verdict = f"DIFFERS {row.why}" if row.why else "ok"
            lines.append(f"  {name:{width}}  error {row.error:9.2e}  allowed {row.allowed:9.2e}  {verdict}")
        if self.layer:
            lines.append(f"  the first layer that differs is {self.layer}")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the same as JSON: {name, device, steps, exact, equal, layer, rows: [{step, name, error, allowed, why}]}."""
        return json.dumps({**asdict(self), "equal": self.equal})

    def __str__(self) -> str:
        return self.to_text()


def _excess(row: Difference) -> float:
    return float("inf") if row.why else row.error / row.allowed if row.allowed else row.error

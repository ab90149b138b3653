"""Replacements for ops that are not supported: one row an op, for all its overloads.

Each row has a case in `tests/py/frontend/advised.py`: the op is still refused, and the advice trains as the op does in torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """Code of tensors with the same meaning."""

    code: str
    note: str = ""
    """The place of the replacement, or the code before it; empty if there is nothing to add."""

    def __str__(self) -> str:
        return f"{self.code}, {self.note}" if self.note else self.code


ADVICE: dict[str, Advice] = {
    "aten.addbmm": Advice("M + (a @ b).sum(0)"),
    "aten.dist": Advice("torch.linalg.vector_norm(x - y)"),
    "aten.fmax": Advice("torch.where(x.isnan() | (x < y), y, x)"),
    "aten.fmin": Advice("torch.where(x.isnan() | (x > y), y, x)"),
    "aten.hypot": Advice("(x * x + y * y).sqrt()"),
    "aten.ldexp": Advice("x * 2.0**exponent"),
    "aten.pdist": Advice("torch.cdist(x, x)[torch.triu_indices(n, n, 1).unbind()]"),
    "aten.signbit": Advice("torch.copysign(torch.ones_like(x), x) < 0"),
}
"""The advice by the name of the op."""


def advice_for(op: str) -> str:
    """Return the replacement for an overload such as `aten.conv2d.default`; empty if none is known."""
    return str(ADVICE.get(op.rpartition(".")[0], ""))

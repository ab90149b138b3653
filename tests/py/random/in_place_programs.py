"""
Random functions that write into fresh tensors and views of them, from one seed: `repr` of one is the code that runs.

They also detach, compute under `no_grad`, update buffers, and read a tensor before and after it is written to.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from in_place_steps import Writer, batch_of, in_torch
from torch.nn import functional as F

MAKERS = (
    *(
        "torch.zeros_like({a})",
        "torch.ones_like({a})",
        "torch.full_like({a}, 0.5)",
        "torch.empty_like({a}).fill_(1.5)",
    ),
    *(
        "{a}.new_zeros(4, 3)",
        "{a}.new_ones(4, 3)",
        "{a}.new_full((4, 3), 0.25)",
        "{a}.new_empty(4, 3).zero_()",
    ),
    *("{a}.new_tensor([[0.5, 1.0, -1.0]] * 4)", "torch.tensor([[0.5, 1.0, -1.0]] * 4, dtype=x.dtype)"),
    *("torch.zeros(4, 3, dtype=x.dtype)", "torch.ones(4, 3, dtype=x.dtype).detach()", "{a}.detach().clone()"),
    *(
        "{a}.clone()",
        "x * 2",
        "F.one_hot({a}.argmax(1), 3).to(x.dtype)",
        "torch.where({a} > 0, 1.0, 0.5).to(x.dtype)",
    ),
)
"""Expressions of a tensor of four rows of three with memory of its own, some of a differentiable `a`."""

VIEWS = (
    *("{o}", "{o}", "{o}.view(3, 4).view(4, 3)", "{o}[:, :].detach()", "{o}.view(-1).view(4, 3)"),
    *("{o}.unsqueeze(0)[0]", "{o}[0:4]", "{o}.t().t()"),
)
"""All of a tensor, by another name."""

WRITES = (
    *(
        "{o} += {a}",
        "{o} *= {a}",
        "{o} -= 0.5",
        "{o}.add_({a}, alpha=2)",
        "{o}.mul_({a})",
        "{o}.copy_({a})",
        "{o}.neg_()",
    ),
    *(
        "{o}[:, 0] = {a}[:, 1]",
        "{o}[1:3] = {a}[0]",
        "{o}[0, 1] = {a}.sum()",
        "{o}[:, ::2] += {a}[:, :2]",
        "{o}[2] = 0.5",
    ),
    *(
        "{o}.index_add_(0, index, {a})",
        "{o}.scatter_add_(0, index[:, None].expand(4, 3), {a})",
        "{o}.zero_()",
    ),
    *(
        "{o}.index_put_((index,), {a}, accumulate=True)",
        "{o}.masked_fill_(x > 0, {a}.sum())",
        "{o}.fill_({a}.sum())",
    ),
    *(
        "{o}.t()[1:].t().mul_(1.5)",
        "{o}.view(-1)[2:].view(2, 5)[1].copy_({a}.reshape(-1)[:5])",
        "{o}.lerp_({a}, 0.25)",
    ),
    *(
        "{o}[0].add_({a}[1]); {o}[1].mul_({o}[0])",
        "{o}.addcmul_({a}, {a})",
        "{o}.select(1, 2).sub_({a}[:, 0])",
    ),
)
"""What changes a tensor in place by another."""

READS = (
    *(
        "{a} * {b}",
        "{a} + {b}",
        "torch.tanh({a}) - {b}",
        "({a}.detach() + 1) * {b}",
        "{a} @ {b}.t() @ {a}",
        "{a} + x",
    ),
    *(
        "{a}.softmax(1)",
        "{a} * ({b} > 0).to(x.dtype)",
        "torch.cat([{a}, {b}])[1:5]",
        "torch.where({b} > 0, {a}, {b})",
    ),
    *("m.two({a})", "{a} / ({b}.detach().abs() + 1)", "{a}.sum(0) * {b}", "F.layer_norm({a}, (3,)) + {b}"),
)

STATE = (
    *(
        "m.kept.add_({a}.detach())",
        "m.kept.copy_({a}.detach() * 0.5)",
        "m.count += 1",
        "m.kept[1] = {a}.detach()[0]",
    ),
    *(
        "F.batch_norm({a}, m.mean, m.variance, training=True)",
        "m.kept.index_copy_(0, index[:2], {a}.detach()[:2])",
    ),
    *("F.instance_norm({a}.reshape(2, 3, 2), m.mean, m.variance, use_input_stats=True)",),
)
"""What changes buffers, and has no result that anybody reads."""


class InPlaceProgram:
    """A body of `Writer`, as lines of Python."""

    def __init__(self, seed: int):
        self.seed = seed
        self.draw = random.Random(seed)
        self.count = 0
        self.lines: list[str] = []
        names, own = ["h"], list[str]()
        self._make(names, own)
        for _ in range(self.draw.randint(3, 8)):
            kind = self.draw.choices(("make", "view", "write", "read", "state"), (2, 2, 5, 4, 1))[0]
            if kind == "make":
                self._make(names, own)
            elif kind == "view":
                own.append(self._assign(self.draw.choice(VIEWS).format(o=self.draw.choice(own))))
            elif kind == "write":
                text = self.draw.choice(WRITES).format(o=self.draw.choice(own), a=self.draw.choice(names))
                self._quiet(text, 0.2)
            elif kind == "read":
                a, b = (self.draw.choice([*names, *own]) for _ in range(2))
                names.append(self._assign(self.draw.choice(READS).format(a=a, b=b), 0.1))
            else:
                self._quiet(self.draw.choice(STATE).format(a=self.draw.choice([*names, *own])), 0.5)
        ends = self.draw.sample([*names, *own], min(3, len(names) + len(own)))
        self.lines.append(f"return {' + '.join(dict.fromkeys(['h', *ends]))}")

    def _make(self, names: list[str], own: list[str]) -> None:
        own.append(self._assign(self.draw.choice(MAKERS).format(a=self.draw.choice(names)), 0.1))

    def _assign(self, text: str, quiet: float = 0.0) -> str:
        self.count += 1
        self._quiet(f"v{self.count} = {text}", quiet)
        return f"v{self.count}"

    def _quiet(self, text: str, chance: float) -> None:
        """A line, now and then under `no_grad`."""
        prefix = ""
        if self.draw.random() < chance:
            prefix = "with torch.no_grad(): "
        self.lines.append(prefix + text)

    def __repr__(self) -> str:
        return "\n    ".join(("def body(m, x, h):", "index = torch.tensor([2, 0, 2, 1])", *self.lines))

    def body(self) -> Any:
        """The function."""
        space: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(repr(self), f"<in-place program {self.seed}>", "exec"), space)
        return space["body"]


def in_place_program(seed: int) -> InPlaceProgram:
    """The first program of a seed that torch itself can train: it refuses some writes into what it has saved."""
    for number in range(100):
        program = InPlaceProgram(seed * 100 + number)
        try:
            in_torch(Writer(program.body()), batch_of(torch.float64), "train step")
        except RuntimeError:
            continue
        return program
    raise ValueError(f"torch trains none of a hundred programs of seed {seed}")

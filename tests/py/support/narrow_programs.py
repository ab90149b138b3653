"""Programs of f16 or bf16: pointwise functions of torch, then what reads their value in several ways, judged by that value.

A step gives its value y beside what it makes of it. Whatever y is in the last place, an order of y must be torch's order of
that very y, and a sum of y the sum of those numbers: a value has one value. y itself is held against torch eager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aicf_mlir import compile_eval_step
from aicf_mlir.step.eval_step import CompiledEvalStep

Batch = dict[str, Tensor]
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


@dataclass(frozen=True)
class Function:
    """A pointwise function of y and of the parameter w, which is repeated along the rows."""

    name: str
    of: Callable[[Tensor, Tensor], Tensor]
    exact: bool = True
    """Whether it is one operation that IEEE rounds, and so has torch's bits."""


def inside(y: Tensor) -> Tensor:
    """Within what exponentials and powers can take."""
    return y.clamp(-4.0, 4.0)


FUNCTIONS = tuple(
    Function(name, of)
    for name, of in {
        "add": lambda y, w: y + w,
        "sub": lambda y, w: w - y,
        "mul": lambda y, w: y * w,
        "div": lambda y, w: y / (w.abs() + 0.5),
        "affine": lambda y, w: y * 0.3 + 1,
        "neg": lambda y, w: -y,
        "abs": lambda y, w: y.abs(),
        "relu": lambda y, w: F.relu(y),
        "clamp": lambda y, w: y.clamp(-0.7, 0.9),
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "square": lambda y, w: inside(y).square(),
        "sqrt": lambda y, w: y.abs().sqrt(),
        "where": lambda y, w: torch.where(y > w, y, w),
        "leaky_relu": lambda y, w: F.leaky_relu(y, 0.1),
        "quarters": lambda y, w: (y * 4).round() * 0.25,
        "residual": lambda y, w: y + y * w,
    }.items()
) + tuple(
    Function(name, of, exact=False)
    for name, of in {
        "sigmoid": lambda y, w: torch.sigmoid(y),
        "tanh": lambda y, w: torch.tanh(y),
        "gelu": lambda y, w: F.gelu(y),
        "gelu by tanh": lambda y, w: F.gelu(y, approximate="tanh"),
        "silu": lambda y, w: F.silu(y),
        "exp": lambda y, w: torch.exp(inside(y)),
        "log": lambda y, w: torch.log(y.abs() + 0.25),
        "softplus": lambda y, w: F.softplus(y),
        "mish": lambda y, w: F.mish(y),
        "elu": lambda y, w: F.elu(y),
        "hardswish": lambda y, w: F.hardswish(y),
        "sin": lambda y, w: torch.sin(inside(y)),
        "erf": lambda y, w: torch.erf(y),
        "pow": lambda y, w: (y.abs() + 0.1) ** 1.7,
        "gate": lambda y, w: y * torch.sigmoid(y + w),
        "softmax": lambda y, w: torch.softmax(y, -1),
        "layer_norm": lambda y, w: F.layer_norm(y, y.shape[-1:], w),
    }.items()
)

Ends = Mapping[str, Tensor]
"""What is made of y, by name."""


@dataclass(frozen=True)
class Reader:
    """What reads y: its results, and whether results are right for a y; an empty text where they are."""

    of: Callable[[Tensor, Batch], Sequence[Tensor]]
    fault: Callable[[Tensor, Batch, Sequence[Tensor]], str]


def same(of: Callable[[Tensor, Batch], Sequence[Tensor]]) -> Reader:
    """Of which each number is torch's."""

    def fault(y: Tensor, batch: Batch, got: Sequence[Tensor]) -> str:
        wanted = of(y, batch)
        wrong = [int((a != b).sum()) for a, b in zip(got, wanted, strict=True) if not torch.equal(a, b)]
        return f"{wrong} elements are not those of its y" if wrong else ""

    return Reader(of, fault)


def chosen(of: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Reader:
    """Values and where they stand, which of equal ones torch leaves open: each place has its value, and none comes twice."""

    def fault(y: Tensor, batch: Batch, got: Sequence[Tensor]) -> str:
        values, places = got
        wide = values.ndim == y.ndim
        at = places if wide else places.unsqueeze(-1)
        if not torch.equal(values, of(y)[0]):
            return "the values are not those of its y"
        if not torch.equal(y.gather(-1, at), values if wide else values.unsqueeze(-1)):
            return "a place has not its value"
        twice = wide and any(len(set(row)) < len(row) for row in at.flatten(0, -2).tolist())
        return "a place comes twice" if twice else ""

    return Reader(lambda y, batch: list(of(y)), fault)


def summed(of: Callable[[Tensor, Batch], Tensor]) -> Reader:
    """A sum of many terms: in f32, within what the order of its terms may change; else rounded once besides."""

    def fault(y: Tensor, batch: Batch, got: Sequence[Tensor]) -> str:
        wide = {name: value.double() if value.is_floating_point() else value for name, value in batch.items()}
        exact, (found,) = of(y.double(), wide), got
        noise = 64 * 2.0**-24 * (exact.abs() + exact.abs().max() + 1.0)
        unit = torch.finfo(found.dtype).eps if found.dtype in DTYPES.values() else 0.0
        off = (found.double() - exact).abs() - noise - 0.5 * unit * exact.abs() - unit * 2.0**-14
        return f"{found} is not {exact}" if bool((off > 0).any()) or bool(found.isnan().any()) else ""

    return Reader(lambda y, batch: [of(y, batch)], fault)


def wide(y: Tensor) -> Tensor:
    """In f32, where it was in 16 bits."""
    return y.float() if y.dtype in DTYPES.values() else y


READERS: Mapping[str, Reader] = {
    "sort": same(lambda y, batch: list(torch.sort(y, dim=-1, stable=True))),
    "sort downwards": same(lambda y, batch: list(torch.sort(y, dim=-1, descending=True, stable=True))),
    "argsort": same(lambda y, batch: [torch.argsort(y, dim=-1, stable=True)]),
    "sort of columns": same(lambda y, batch: list(torch.sort(y, dim=0, stable=True))),
    "topk": chosen(lambda y: torch.topk(y, 3, -1)),
    "smallest": chosen(lambda y: torch.topk(y, 2, -1, largest=False)),
    "kthvalue": chosen(lambda y: torch.kthvalue(y, 2, -1)),
    "max": chosen(lambda y: torch.max(y, -1)),
    "amin": same(lambda y, batch: [y.amin(-1)]),
    "is the largest": same(lambda y, batch: [y == y.amax(-1, keepdim=True)]),
    "gather": same(lambda y, batch: [y.gather(-1, batch["index"])]),
    "rows": same(lambda y, batch: [y[batch["row"]]]),
    "other": same(lambda y, batch: [y.flip(-1), y.t().contiguous()]),
    "cast": same(lambda y, batch: [y.float()]),
    "sum": summed(lambda y, batch: wide(y).sum()),
    "sum of rows": summed(lambda y, batch: wide(y).sum(-1)),
    "sum of columns": summed(lambda y, batch: wide(y).sum(0)),
    "narrow sum": summed(lambda y, batch: y.sum(-1)),
    "mean": summed(lambda y, batch: y.mean(0)),
    "squares": summed(lambda y, batch: wide(y).square().mean()),
    "product": summed(lambda y, batch: wide(y) @ wide(batch["matrix"])),
    "narrow product": summed(lambda y, batch: y @ batch["matrix"]),
    "squared error": summed(lambda y, batch: F.mse_loss(wide(y), wide(batch["target"]))),
    "absolute error": summed(lambda y, batch: F.l1_loss(wide(y), wide(batch["target"]))),
    "cross entropy": summed(lambda y, batch: F.cross_entropy(wide(y).clamp(-30, 30), batch["class"])),
    "logits": summed(
        lambda y, batch: F.binary_cross_entropy_with_logits(wide(y).clamp(-30, 30), wide(batch["target"]))
    ),
}
"""By name, what may be fused with that which makes y, or compute it again."""


@dataclass(frozen=True)
class NarrowProgram:
    """Functions one behind the other, and what reads the last one's value."""

    element: str
    shape: tuple[int, int]
    functions: tuple[Function, ...]
    readers: tuple[str, ...]
    seed: int

    def __repr__(self) -> str:
        functions = ", ".join(function.name for function in self.functions)
        return f"{self.element}{list(self.shape)}: {functions}; {', '.join(self.readers)} (seed {self.seed})"

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.element]

    @property
    def exact(self) -> bool:
        """Whether y has torch's bits."""
        return all(function.exact for function in self.functions)

    def batch(self) -> Batch:
        rows, columns = self.shape
        generator = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(self.dtype)

        def index(most: int, *shape: int) -> Tensor:
            return torch.randint(0, most, shape, generator=generator)

        return {
            "x": normal(rows, columns) * 2,
            "target": torch.rand(rows, columns, generator=generator).to(self.dtype),
            "matrix": normal(columns, 5),
            "index": index(columns, rows, 3),
            "row": index(rows, 4),
            "class": index(columns, rows),
        }

    def model(self) -> Functions:
        return Functions(self)

    def compiled(self, model: Functions, batch: Batch, device: str) -> CompiledEvalStep:
        """The step, which gives y and what its readers make of it."""

        def loss(model: Any, batch: Any) -> Any:
            y = model(batch["x"])
            made = {
                f"{name}{number}": value
                for name in self.readers
                for number, value in enumerate(READERS[name].of(y, batch))
            }
            return y.float().sum(), {"y": y, **made}

        return compile_eval_step(model, loss_fn=loss, example=batch, device=device)

    def faults(self, batch: Batch, ends: Ends) -> list[str]:
        """What is wrong with these results, by the y among them."""
        y, found = ends["y"], list[str]()
        for name in self.readers:
            reader = READERS[name]
            got = [ends[f"{name}{number}"] for number in range(len(reader.of(y, batch)))]
            if fault := reader.fault(y, batch, got):
                found.append(f"{name}: {fault}")
        return found


class Functions(nn.Module):
    """y of x."""

    def __init__(self, program: NarrowProgram):
        super().__init__()
        self.program = program
        generator = torch.Generator().manual_seed(program.seed + 1)
        self.w = nn.Parameter(torch.randn(program.shape[1], generator=generator).to(program.dtype))

    def forward(self, x: Tensor) -> Tensor:
        for function in self.program.functions:
            x = function.of(x, self.w)
        return x


def narrow_program(seed: int) -> NarrowProgram:
    """The program of a seed: one in three has torch's bits throughout."""
    draw = Random(seed)
    among = [function for function in FUNCTIONS if function.exact] if draw.random() < 0.34 else FUNCTIONS
    return NarrowProgram(
        draw.choice(sorted(DTYPES)),
        (draw.choice((4, 7, 16)), draw.choice((3, 5, 8, 17, 33))),
        tuple(draw.choice(among) for _ in range(draw.randint(1, 4))),
        tuple(draw.sample(sorted(READERS), draw.randint(1, 4))),
        seed,
    )

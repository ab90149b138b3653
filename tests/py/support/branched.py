"""Plans with branches for a GPU, which none is needed for: made, filled, and run in any order that `after` allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from unittest.mock import patch

import numpy as np
import torch
from models import mlp, mse, regression
from plans import shuffle
from torch import nn
from torch.nn import functional
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import trace
from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.dialects.plan.branches import branches_of, reach_of, with_branch_order
from aicf_mlir.dialects.plan.hazards import Reach
from aicf_mlir.interpreters import run_plan
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.passes.fuse.small_updates import SmallUpdateFusion
from aicf_mlir.passes.multi_stream.estimates import microseconds_of
from aicf_mlir.passes.multi_stream.scheduling import ends_of
from aicf_mlir.stages import Snapshots, make_context, run_stages

TARGETS = ("sm_90", "sm_90+cublaslt")


class Transformer(nn.Module):
    """Two blocks of attention and an MLP over an embedding; the loss checks its class indices."""

    def __init__(self, width: int, classes: int = 11):
        super().__init__()
        self.embedding = nn.Embedding(classes, width)
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, 2, 4 * width, 0.0, batch_first=True, norm_first=True)
                for _ in range(2)
            )
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(x)))


def class_loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Cross-entropy over the last dimension."""
    return functional.cross_entropy(model(batch["x"]).flatten(0, 1), batch["t"].flatten())


def _traced_mlp(rows: int, width: int, layers: int) -> Callable[[], ModuleOp]:
    def make() -> ModuleOp:
        model = mlp(*[width] * (layers + 1))
        optimizer = torch.optim.Adam(model.parameters())
        return trace(model, mse, regression(rows, width, width), optimizer=optimizer).module

    return make


def _traced_transformer(rows: int, length: int, width: int) -> Callable[[], ModuleOp]:
    def make() -> ModuleOp:
        torch.manual_seed(0)
        model = Transformer(width)
        batch = {name: torch.zeros(rows, length, dtype=torch.int64) for name in ("x", "t")}
        return trace(
            model, class_loss, batch, optimizer=torch.optim.AdamW(model.parameters(), foreach=False)
        ).module

    return make


MODELS: dict[str, Callable[[], ModuleOp]] = {
    "64x256x2": _traced_mlp(64, 256, 2),
    "64x256x8": _traced_mlp(64, 256, 8),
    "4x8x3": _traced_mlp(4, 8, 3),
    "transformer": _traced_transformer(2, 3, 8),
    "wide transformer": _traced_transformer(4, 32, 64),
    "2048x2048x3": _traced_mlp(2048, 2048, 3),
}
LARGE = "2048x2048x3"
"""Each of its products fills a GPU."""
SMALL = [name for name in MODELS if name != LARGE]


@cache
def stages(name: str, target: str = "sm_90", **options: str) -> Snapshots:
    """Every stage of a model of the table; `options` are those of passes, with `_` for `-`.

    Updates are launches of their own, or the small models had nothing left for a second branch.
    """
    module, found = MODELS[name](), Snapshots()
    given = {"multi_stream": "", **options}
    named = {key.replace("_", "-"): text for key, text in given.items() if text != "no"}
    with patch.object(SmallUpdateFusion, "write", lambda self: None):
        run_stages(module, make_context(), target=target, options=named, after_each=found)
    return found


def plan(name: str, target: str = "sm_90", stage: str = "plan", **options: str) -> ProgramOp:
    """The plan of a model of the table."""
    return find_program(stages(name, target, **options)[stage])


def edges_of(program: ProgramOp) -> list[list[int]]:
    """What each launch waits for, by index."""
    index = {launch.symbol: number for number, launch in enumerate(program.launches)}
    return [[index[name] for name in launch.waits_for] for launch in program.launches]


def order_of(program: ProgramOp) -> Reach:
    """What is complete before what, by `after` and by branches."""
    return reach_of(with_branch_order(edges_of(program), branches_of(program.launches)))


def microseconds(program: ProgramOp) -> float:
    """How long a plan is estimated to take on its branches."""
    edges = with_branch_order(edges_of(program), branches_of(program.launches))
    return max(ends_of(microseconds_of(program), edges))


def filled(program: ProgramOp, seed: int, index: int | None = None) -> dict[str, bytearray]:
    """The arenas of a plan with random arguments, garbage elsewhere; integers are small, or all `index`."""
    rng = np.random.default_rng(seed)
    arenas = {name: bytearray(rng.bytes(arena.nbytes)) for name, arena in program.arenas.items()}
    for slot in program.slots.values():
        if slot.alias is not None or slot.place is None or slot.role.data in ("temp", "grad", "output"):
            continue
        (arena, offset), (element, shape) = slot.place, slot.spec
        view = np.frombuffer(arenas[arena], NUMPY_TYPES[element], int(np.prod(shape)), offset)
        if slot.role.data == "status":
            view[...] = 0
        elif element.startswith("i"):
            view[...] = rng.integers(0, 5, view.shape) if index is None else index
        else:
            view[...] = rng.uniform(0.1, 1, view.shape)
    return arenas


def lasting(program: ProgramOp, arenas: Mapping[str, bytearray]) -> dict[str, bytes]:
    """The bytes of all slots that outlive the step."""
    found: dict[str, bytes] = {}
    for name, slot in program.slots.items():
        if slot.place is not None and slot.role.data != "temp":
            arena, offset = slot.place
            found[name] = bytes(arenas[arena][offset : offset + slot.nbytes])
    return found


def shuffled(module: ModuleOp, seed: int) -> ModuleOp:
    """A copy of the plan with its launches in another order that `after` allows; branches say nothing here."""
    copy = module.clone()
    shuffle(find_program(copy), np.random.default_rng(seed))
    return copy


def ran(module: ModuleOp, seed: int, index: int | None = None) -> dict[str, bytes]:
    """What one step of the plan leaves of random arguments."""
    program = find_program(module)
    arenas = filled(program, seed, index)
    with np.errstate(all="ignore"):
        run_plan(program, arenas)
    return lasting(program, arenas)

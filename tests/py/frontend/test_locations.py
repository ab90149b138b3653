"""Every op says which line of the user's and which layer of the model it comes from, from the trace to the launch."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest
import torch
from torch import nn
from xdsl.dialects.builtin import (
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.dialects.test import TestOp as AnyOp  # pytest takes what is called Test… for tests
from xdsl.ir import Operation
from xdsl.parser import Parser

from aicf_mlir.dialects.plan import LaunchOp
from aicf_mlir.errors import DataError, TraceError
from aicf_mlir.frontend import trace
from aicf_mlir.ir.locations import MAX_FUSED, SourceLocation, common_location, fused_location, origin, origins
from aicf_mlir.ir.printing import to_text
from aicf_mlir.passes.pipeline import parse_passes, run_passes
from aicf_mlir.runtime.program import load_program
from aicf_mlir.stages import STAGE_NAMES, Snapshots, run_stages
from aicf_mlir.step.compile import compile_train_step
from aicf_mlir.text.parsing import make_context, parse_module


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.attn(x)) + x  # the line of a block


class Model(nn.Module):
    def __init__(self, head: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = nn.ModuleList([Block(), Block()])
        self.head = head or nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.encoder:
            x = block(x)
        return self.head(x * 2.0)  # the line of the model


def loss_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch["x"]), batch["t"])  # the line of the loss


BATCH = {"x": torch.randn(4, 8), "t": torch.randint(0, 5, (4,))}


def line(comment: str) -> int:
    """The line of this file that ends in a comment."""
    lines = linecache.getlines(__file__)
    return next(number for number, text in enumerate(lines, 1) if text.rstrip().endswith(f"# {comment}"))


def stages() -> Snapshots:
    model, snapshots = Model(), Snapshots()
    traced = trace(model, loss_of, BATCH, optimizer=torch.optim.Adam(model.parameters()))
    run_stages(traced.module, make_context(), after_each=snapshots)
    return snapshots


def where(op: Operation) -> tuple[int, str]:
    found = origin(op)
    assert found is not None and Path(found.file) == Path(__file__), op.name
    return found.line, found.layer


def layers(snapshots: Snapshots, stage: str, name: str) -> list[tuple[int, str]]:
    return [where(op) for op in snapshots[stage].walk() if op.name == name]


def test_an_op_is_at_its_line_and_in_its_layer() -> None:
    snapshots, block = stages(), line("the line of a block")
    assert layers(snapshots, "nn", "nn.linear") == [
        (block, "encoder.0.attn: Linear"),
        (block, "encoder.1.attn: Linear"),
        (line("the line of the model"), "head: Linear"),
    ]
    assert layers(snapshots, "nn", "nn.tanh") == [(block, "encoder.0: Block"), (block, "encoder.1: Block")]
    assert layers(snapshots, "nn", "nn.mul") == [(line("the line of the model"), "Model")]
    assert layers(snapshots, "nn", "nn.cross_entropy") == [(line("the line of the loss"), "")]


def test_a_gradient_is_in_the_layer_of_its_op() -> None:
    found = layers(stages(), "grad", "nn.tanh_grad")
    assert [layer for _, layer in found] == ["encoder.1: Block", "encoder.0: Block"]


def test_a_fused_launch_names_what_it_stands_for() -> None:
    for stage, kinds in (("fused", ("kernel.gemm_epilogue", "kernel.gemm_map")), ("plan", ("plan.launch",))):
        op = next(op for op in stages()[stage].walk() if op.name in kinds)
        assert [found.layer for found in origins(op)] == ["encoder.0.attn: Linear", "encoder.0: Block"]


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_no_op_of_any_stage_is_without_a_line(stage: str) -> None:
    module = stages()[stage]
    for op in module.walk():
        bodies = ("scalar", "arith", "math")  # one for many launches
        if (
            op is not module
            and op.name not in ("plan.arena", "plan.slot")
            and op.dialect_name() not in bodies
        ):
            where(op)


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_locations_are_printed_and_read_again(stage: str) -> None:
    text = to_text(stages()[stage], locations=True)
    assert ' loc("head: Linear"("' in text.replace("\n", " ")
    assert to_text(Parser(make_context(), text).parse_module(), locations=True) == text, "xDSL's own parser"
    again = parse_module(text)
    launches = [
        op
        for op in again.walk()
        if op.name in ("nn.linear", "kernel.gemm", "kernel.gemm_epilogue", "plan.launch")
    ]
    assert "encoder.0.attn: Linear" in {where(op)[1] for op in launches}


def test_a_launch_of_the_runtime_knows_its_name_line_and_layer() -> None:
    plan = stages()["plan"]
    rows = load_program(plan).launches
    symbols = [op.symbol for op in plan.walk() if isinstance(op, LaunchOp)]
    assert [row.get("symbol") for row in rows] == symbols
    assert rows[0].get("origin") == f"{__file__}:{line('the line of a block')}, layer encoder.0.attn: Linear"
    assert all(row.get("origin") for row in rows)


class Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.log_ndtr(x * self.scale)  # not supported


def test_a_refused_op_is_named_with_its_line_and_layer() -> None:
    with pytest.raises(TraceError) as error:
        trace(Model(Refused()), loss_of, BATCH)
    assert str(error.value).startswith(f"{__file__}:{line('not supported')}: aten.")
    assert str(error.value).endswith("; in layer head: Refused")
    assert "is not supported (`return torch.special.log_ndtr(" in str(error.value)


class Lookup(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        target = torch.full((4,), 7)
        return x + nn.functional.cross_entropy(x, target)  # out of range


def test_a_failed_check_is_named_with_its_line_and_layer() -> None:
    model = nn.Sequential(nn.Linear(8, 5), Lookup())
    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.1), device="cpu", example=BATCH, loss_fn=loss_of
    )
    with pytest.raises(DataError) as error:
        step.train_step(BATCH)
    assert f"{__file__}:{line('out of range')}, layer 1: Lookup (`" in str(error.value)


def test_a_pass_that_fails_names_the_layer() -> None:
    module = trace(Model(), loss_of, BATCH).module
    tanh = next(op for op in module.walk() if op.name == "nn.tanh")
    unknown = AnyOp([tanh.operands[0]], [tanh.results[0].type])
    unknown.location = tanh.location
    block = tanh.parent_block()
    assert block is not None
    block.insert_op_before(unknown, tanh)
    tanh.results[0].replace_all_uses_with(unknown.results[0])
    with pytest.raises(Exception, match=r"'test.op' has no lowering") as error:
        run_passes(make_context(), module, parse_passes("lower"))
    place = f"{__file__}:{line('the line of a block')}, layer encoder.0: Block"
    assert f"at {place}" in error.value.__notes__


FILE = FileLineColLoc(StringAttr("model.py"), IntAttr(12), IntAttr(5))
LAYER = NameLoc(StringAttr("0: Linear"), FILE)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (UnknownLoc(), []),
        (FILE, ["model.py:12"]),
        (LAYER, ["model.py:12, layer 0: Linear"]),
        (NameLoc(StringAttr("a name"), NoneAttr()), []),
        (
            FusedLoc((LAYER, UnknownLoc(), FILE, LAYER), NoneAttr()),
            ["model.py:12, layer 0: Linear", "model.py:12"],
        ),
        (NameLoc(StringAttr("outer"), LAYER), ["model.py:12, layer 0: Linear"]),
        (CallSiteLoc(FILE, FILE), []),
    ],
)
def test_the_origins_of_an_op(location: LocationAttr, expected: list[str]) -> None:
    op = AnyOp()
    op.location = location
    assert list(map(str, origins(op))) == expected
    assert str(origin(op)) == (expected or ["None"])[0]


def located(*locations: SourceLocation) -> list[Operation]:
    ops: list[Operation] = []
    for location in locations:
        ops.append(AnyOp())
        ops[-1].location = location.attribute
    return ops


def test_what_is_fused_is_named_once() -> None:
    first, second = SourceLocation("a.py", 1, "0: Linear"), SourceLocation("a.py", 1, "1: ReLU")
    op = AnyOp()
    op.location = fused_location(*located(first, second, first))
    assert origins(op) == [first, second]
    assert fused_location(*located(first, first)) == first.attribute
    assert fused_location(AnyOp()) == UnknownLoc()
    op.location = fused_location(op, *located(second))
    assert origins(op) == [first, second]


def test_what_is_done_for_several_layers_names_their_lines_only() -> None:
    op = AnyOp()
    op.location = common_location(located(*(SourceLocation("a.py", i % 2, f"{i}: Linear") for i in range(9))))
    assert list(map(str, origins(op))) == ["a.py:0", "a.py:1"]
    op.location = common_location(located(*(SourceLocation("a.py", i % 2, "0: Linear") for i in range(9))))
    assert list(map(str, origins(op))) == ["a.py:0, layer 0: Linear", "a.py:1, layer 0: Linear"]
    op.location = common_location(located(*(SourceLocation("a.py", i) for i in range(100))))
    assert len(origins(op)) == MAX_FUSED


def test_the_launch_of_the_optimizer_is_of_no_layer() -> None:
    launch = [op for op in stages()["plan"].walk() if isinstance(op, LaunchOp)][-1]
    assert launch.op.data == "adam_step"
    assert {found.layer for found in origins(launch)} == {""}

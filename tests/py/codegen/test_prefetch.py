"""What a launch reads in front of its wait is there: plans of models, by the meaning of their launches, and generated text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from branched import filled
from generated_cases import dense
from models import mlp, regression
from test_dependent_launch import ptx
from test_several_launches import product, together
from test_small_updates import planned
from torch import nn
from xdsl.dialects.builtin import DictionaryAttr, StringAttr

from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda import generate
from aicf_mlir.codegen.cuda.ahead import can_prefetch
from aicf_mlir.codegen.cuda.dependency import READ_AHEAD, WAIT, all_wait, without_wait
from aicf_mlir.codegen.schedule import workspace
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp, SlotOp, find_program
from aicf_mlir.dialects.plan.ahead import AHEAD, settled
from aicf_mlir.dialects.plan.copies import first_step_only
from aicf_mlir.dialects.plan.kernels import use_of
from aicf_mlir.errors import SelectionError
from aicf_mlir.interpreters.plan import run_plan
from aicf_mlir.ir.attributes import to_attribute
from aicf_mlir.ir.formula import select, trace
from aicf_mlir.ir.reading import decode
from aicf_mlir.kernels.kernel import Kernel, Product, Tensor
from aicf_mlir.kernels.schedule_text import divided_id
from aicf_mlir.passes.prefetch import prefetch
from aicf_mlir.text.parsing import make_context, parse_source
from aicf_mlir.tuning.lock import Choice, Lock

PLANS: Mapping[str, Callable[[], ProgramOp]] = {
    "f32": lambda: planned(mlp(32, 32, 32), regression(16, 32, 32)),
    "bf16": lambda: planned(mlp(32, 32, 32), regression(16, 32, 32), precision="bf16"),
    "three layers": lambda: planned(mlp(20, 36, 28, 8), regression(12, 20, 8)),
    "no biases": lambda: planned(
        nn.Sequential(nn.Linear(16, 16, bias=False), nn.Tanh(), nn.Linear(16, 16, bias=False)),
        regression(8, 16, 16),
    ),
    "branches": lambda: planned(mlp(32, 32, 32, 32), regression(16, 32, 32), **{"multi-stream": ""}),
}


def ahead_of(launch: LaunchOp) -> list[int]:
    """The operands that it reads ahead."""
    found = launch.values.get(AHEAD, ())
    assert isinstance(found, list | tuple)
    return [int(number) for number in found]


def alone(program: ProgramOp, number: int) -> ProgramOp:
    """The plan with one of its launches only."""
    parent = program.parent_op()
    assert parent is not None
    found = find_program(parent.clone())
    for index, launch in enumerate(found.launches):
        if index != number:
            launch.detach()
            launch.erase()
    return found


def bytes_of(program: ProgramOp, name: str, arenas: Mapping[str, bytes | bytearray]) -> bytes:
    slot = program.slots[name]
    assert slot.place is not None
    arena, offset = slot.place
    return bytes(arenas[arena][offset : offset + slot.nbytes])


def known(launches: Sequence[LaunchOp], number: int, slots: Mapping[str, SlotOp]) -> frozenset[int]:
    """What a launch may read ahead."""
    return settled(launches, number, slots, first_step_only(launches, slots))


def read_late(program: ProgramOp, wanted: Callable[[int], list[int]]) -> Iterator[tuple[str, int]]:
    """The `wanted` operands that are not yet what the launch reads when the one before it starts, in all and on its branch.

    As (launch, operand), of three steps, of which the second and third leave out what is `once`.
    """
    launches = program.launches
    singles = [alone(program, number) for number in range(len(launches))]
    skipped = first_step_only(launches, program.slots)
    once = [launch in skipped for launch in launches]
    arenas = filled(program, 7)
    history: list[tuple[int, int, dict[str, bytes]]] = []
    for step in range(3):
        for number, launch in enumerate(launches):
            if step and once[number]:
                continue
            before = history[-1:]
            same = [
                e for e in history if e[0] == step and launches[e[1]].branch_number == launch.branch_number
            ]
            before += same[-1:] or [e for e in history if e[0] == step - 1][:1]
            for operand in wanted(number):
                name = launch.reads[operand]
                now = bytes_of(program, name, arenas)
                if any(bytes_of(program, name, held) != now for _, _, held in before):
                    yield launch.symbol, operand
            history.append((step, number, {arena: bytes(data) for arena, data in arenas.items()}))
            run_plan(singles[number], arenas)


@pytest.mark.parametrize("name", PLANS)
def test_what_is_prefetched_is_written_by_then(name: str) -> None:
    program = PLANS[name]()
    chosen = [ahead_of(launch) for launch in program.launches]
    assert sum(map(len, chosen)) > 8
    assert not list(read_late(program, lambda number: chosen[number]))
    # And the others are not: each launch but the first reads something of the launch before.
    others = [
        [n for n in range(len(launch.reads)) if n not in ahead]
        for launch, ahead in zip(program.launches, chosen, strict=True)
    ]
    assert len({symbol for symbol, _ in read_late(program, lambda number: others[number])}) >= 3


def test_a_launch_keeps_its_schedule_or_takes_that_of_a_lock() -> None:
    def without_ahead(schedule: str) -> tuple[ProgramOp, LaunchOp]:
        """A plan in which a product that can read ahead does not yet, and its schedule."""
        program = PLANS["f32"]()
        launch = next(each for each in program.launches if each.op.data == "gemm_map" and ahead_of(each))
        launch.attrs = DictionaryAttr({**launch.attrs.data, AHEAD: to_attribute([])})
        made = Selection(program.parent_op(), "sm_90").generated(use_of(launch, program.slots))
        assert made is not None
        launch.kernel_id = StringAttr(replace(made, schedule=schedule).id)
        return program, launch

    first, second = "panel rows=16 columns=32 resident=2", "panel rows=16 columns=16 resident=1"
    program, launch = without_ahead(first)
    prefetch(program)
    symbol, schedule = divided_id(launch.kernel_id.data)
    assert ahead_of(launch) and schedule == first
    program, launch = without_ahead(first)
    prefetch(program, Lock({"target": "sm_90"}, {symbol: Choice(symbol, f"{symbol}[{second}]")}))
    assert launch.kernel_id.data == f"{symbol}[{second}]"
    program, launch = without_ahead("tile rows=64 columns=32 resident=2")
    prefetch(program)
    assert not ahead_of(launch) and "[tile " in launch.kernel_id.data, "a large tile reads nothing ahead"


@pytest.mark.parametrize("target", ["cpu", "sm_80"])
def test_other_targets_read_nothing_ahead(target: str) -> None:
    program = planned(mlp(32, 32, 32), regression(16, 32, 32), target=target)
    assert not any(ahead_of(launch) for launch in program.launches)


CHAIN = """
plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @w : memref<4xf32> param "w"
  plan.slot @w16 : memref<4xbf16> copy
  plan.slot @none : memref<0xf32> input "none"
  plan.slot @nothing : memref<0xf32> output "nothing"
  plan.slot @a : memref<4xf32> temp
  plan.slot @b : memref<4xbf16> temp
  plan.slot @y : memref<4xf32> output "y"
  plan.launch @k0 "copy_cpu" copy x(@x) -> y(@a)
  plan.launch @k1 "copy_cpu" copy x(@w16) -> y(@b) after @k2
  plan.launch @k2 "copy_cpu" copy x(@w) -> y(@w16)
  plan.launch @k3 "relu_cpu" relu x(@none) -> y(@nothing)
  plan.launch @k4 "add_cpu" add x(@a) y(@w) -> z(@y) after @k0
}
"""


def test_what_a_replay_leaves_out_is_no_launch_in_front() -> None:
    program = parse(CHAIN)
    launches, slots = program.launches, program.slots
    assert known(launches, 0, slots) == {0}, "an input"
    assert known(launches, 4, slots) == {0, 1}, "k1 is in front, and writes neither"
    del launches[1]
    assert known(launches, 3, slots) == {1}, "k0 is, if a replay leaves k2 out and k3 has nothing to do"
    del launches[0]
    assert known(launches, 2, slots) == set(), "the first launch of a replay: a step before may write both"
    assert known(launches, 0, slots) == set(), "as here"


BRANCHES = """
plan.program @p target "sm_90" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @a : memref<4xf32> temp
  plan.slot @b : memref<4xf32> temp
  plan.slot @c : memref<4xf32> temp
  plan.slot @y : memref<4xf32> output "y"
  plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@a)
  plan.launch @k1 "relu_f32_vec4" relu x(@a) -> y(@b) branch 1 after @k0
  plan.launch @k2 "relu_f32_vec4" relu x(@x) -> y(@c)
  plan.launch @k3 "add_f32_vec4" add x(@a) y(@b) -> z(@y) branch 1 after @k1
}
"""


def test_both_the_branch_and_the_text_say_what_is_in_front() -> None:
    program = parse(BRANCHES)
    launches, slots = program.launches, program.slots
    assert known(launches, 3, slots) == {0}, "k1 is in front on its branch"
    assert known(launches, 1, slots) == set(), "k0 is, and nothing on its branch"
    assert known(launches, 2, slots) == {0}


def parse(text: str) -> ProgramOp:
    """Without asking whether it is a valid plan."""
    return find_program(parse_source(make_context(), decode(text, "plan")).module)


def reading(kernel: Kernel, *numbers: int) -> Kernel:
    return replace(kernel, ahead=numbers)


def test_each_member_waits_where_one_reads_ahead() -> None:
    """A kernel that reads ahead says so first, and waits in the part of each member; without a wait it has none at all."""
    for kernel in (reading(product(), 0, 1, 2), reading(together([product(), product(64)]), 0, 2, 4)):
        source = generate(kernel).source
        assert all_wait(source)
        body = source.partition('extern "C"')[2]
        assert READ_AHEAD in body and WAIT not in body.partition(READ_AHEAD)[0]
        assert source.count(WAIT) == len(getattr(kernel, "members", [kernel]))
        assert not all_wait(without_wait(source)) and WAIT not in without_wait(source)
    assert reading(product(), 0).id != product().id


@pytest.mark.nvrtc
def test_only_loads_around_the_first_cache_stand_before_the_wait() -> None:
    for numbers in ((0,), (1, 2), (0, 1, 2, 3)):
        _, entry = ptx(generate(reading(product(), *numbers)).source).split(".visible .entry ")
        before, wait, behind = entry.partition("griddepcontrol.wait;")
        assert wait and behind.split()[0] == "griddepcontrol.launch_dependents;"
        assert not re.search(r"\b(st\.global|atom|red\.|ld\.global(?!\.cg)|cp\.async\.ca)", before), entry
        assert re.search(r"ld\.global\.cg|cp\.async\.cg", before)


@pytest.mark.nvrtc
@pytest.mark.parametrize("ahead", [(), (2,)])
def test_what_is_read_early_may_be_one_byte(ahead: tuple[int, ...]) -> None:
    """Of all operands together: a mask beside a product with rows of an odd number of elements."""
    body = trace(["f32", "i1"], lambda z, kept: select(kept, z, 0.0))
    shape, mask = (7, 5), Tensor("i1", (7, 5), (5, 1), 1)
    given = Product(dense("f32", 7, 4), dense("f32", 4, 5), False, False)
    kernel = Kernel(
        "gemm_map", "sm_90", body, shape, 0, (dense("f32", *shape), mask), (dense("f32", *shape),), given
    )
    code = generate(reading(kernel, *ahead))
    assert "struct Early" in code.source
    assert nvrtc.compile_cuda(code.source, "sm_90")


def test_what_cannot_be_prefetched_is_refused() -> None:
    odd = product(65, 32, 16)  # the rows of its transposed operand are not of 16 bytes
    assert 0 not in can_prefetch(odd) and can_prefetch(product()) >= {0, 1, 2}
    with pytest.raises(SelectionError, match="operand 0 cannot be read ahead"):
        workspace(reading(odd, 0))
    large = product(4096, 4096, 64)
    assert not can_prefetch(large)
    with pytest.raises(SelectionError, match="operand 2 cannot be read ahead"):
        generate(reading(large, 2))

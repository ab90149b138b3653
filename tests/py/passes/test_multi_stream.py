"""Branches of plans for a GPU: what waits for what, and what memory may not add; the text is in tests/lit/passes."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from branched import (
    LARGE,
    SMALL,
    TARGETS,
    edges_of,
    microseconds,
    order_of,
    plan,
    ran,
    shuffled,
    stages,
)
from costs import Some
from kernel_programs import random_function
from mutated_plans import Mutator
from plans import make_plan
from test_bufferize import conflicts
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.dialects.plan.branches import branches_of, reach_of, with_branch_order
from aicf_mlir.dialects.plan.hazards import hazards
from aicf_mlir.errors import AicfError
from aicf_mlir.ir.diagnostics import LocatedError
from aicf_mlir.passes import plan_memory
from aicf_mlir.passes.multi_stream.estimates import microseconds_of
from aicf_mlir.passes.multi_stream.memory import ways_to_share
from aicf_mlir.passes.multi_stream.scheduling import assign, ends_of, paths
from aicf_mlir.passes.multi_stream.versions import give_memory, overwrites
from aicf_mlir.text.parsing import parse_module

UNFUSED = "decompose,lower,elide-copies{target=sm_90},select-kernels{target=sm_90},bufferize"
BRANCHED = f"{UNFUSED},multi-stream,plan-memory"
names = pytest.mark.parametrize("name", SMALL)
targets = pytest.mark.parametrize("target", TARGETS)


def random_plan(seed: int, ops: int = 24, passes: str = BRANCHED) -> ProgramOp:
    return make_plan(random_function(seed, ops), passes)


def module_of(program: ProgramOp) -> ModuleOp:
    module = program.parent_op()
    assert isinstance(module, ModuleOp)
    return module


@targets
@names
def test_what_conflicts_is_in_order_by_after_alone(name: str, target: str) -> None:
    """Streams know nothing of bytes: every pair of launches of which one writes what the other uses is ordered."""
    program = plan(name, target)
    assert len(set(branches_of(program.launches))) > 1
    by_after = reach_of(edges_of(program))
    assert all(pair in by_after for pair in conflicts(program))


@targets
@names
def test_memory_puts_no_launch_behind_another_branch(name: str, target: str) -> None:
    """What is complete before what is the same with addresses as before them, so nothing takes longer either."""
    before, planned = plan(name, target, "buffers"), plan(name, target)
    orders = [order_of(program) for program in (before, planned)]
    count = len(planned.launches)
    assert [orders[0].before(i) for i in range(count)] == [orders[1].before(i) for i in range(count)]
    assert microseconds(before) == microseconds(planned)


@targets
@names
def test_no_new_value_is_kept_waiting_for_readers_of_an_old_one(name: str, target: str) -> None:
    """With memory of its own for every value, nothing would end earlier."""
    apart = find_program(stages(name, target)["buffers"].clone())
    give_memory(apart, overwrites(apart))
    edges = with_branch_order(hazards(apart.launches, apart.slots), branches_of(apart.launches))
    assert max(ends_of(microseconds_of(apart), edges)) == microseconds(plan(name, target))


def test_random_plans_keep_their_order_with_addresses(some: Some) -> None:
    found = 0
    for seed in some(range(30)):
        before, planned = random_plan(seed, passes=f"{UNFUSED},multi-stream"), random_plan(seed)
        orders = [order_of(program) for program in (before, planned)]
        for i in range(len(planned.launches)):
            assert orders[0].before(i) == orders[1].before(i), f"{seed} {planned.launches[i].symbol}"
        found += len(set(branches_of(planned.launches))) > 1
    assert found > 0.8 * len(some(range(30)))


@names
def test_the_estimate_is_shorter_than_one_branch(name: str) -> None:
    one = plan(name, multi_stream="no")
    assert branches_of(one.launches) == [0] * len(one.launches)
    assert microseconds(plan(name)) < 0.85 * microseconds(one)


@names
@pytest.mark.parametrize("more", [1.0, 1.2])
def test_the_peak_stays_within_its_limit(name: str, more: float) -> None:
    """With less memory launches wait, in the end as they would on one branch."""
    unlimited, limited = plan(name), plan(name, plan_memory=f"more={more} small=0")
    single = find_program(stages(name)["buffers"].clone())
    for launch in single.launches:
        launch.set_branch(0)
    alone = make_plan(module_of(single), "plan-memory")
    assert alone.peak_bytes is not None and limited.peak_bytes is not None
    assert limited.peak_bytes <= more * alone.peak_bytes
    assert branches_of(limited.launches) == branches_of(unlimited.launches)
    assert microseconds(unlimited) <= microseconds(limited) <= microseconds(alone)


def test_less_memory_first_costs_what_is_expected_to_cost_nothing() -> None:
    """Between keeping apart all that could overlap and one branch there is sharing behind what will be complete by then."""
    free, tight = plan("64x256x8"), plan("64x256x8", plan_memory="more=1.0 small=0")
    assert (tight.peak_bytes or 0) < (free.peak_bytes or 0)
    assert edges_of(tight) != edges_of(free)
    assert microseconds(tight) == microseconds(free)


@pytest.mark.parametrize("name", [*SMALL, *range(30)])
def test_what_is_expected_to_be_complete_delays_nothing(
    name: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second way to share, of models and of random functions."""
    monkeypatch.setattr(plan_memory, "ways_to_share", lambda *given: list(ways_to_share(*given))[1:])
    is_random, passes = isinstance(name, int), f"{UNFUSED},multi-stream"
    before = random_plan(name, 40, passes=passes) if is_random else plan(name, stage="buffers")
    shared = make_plan(module_of(before), "plan-memory{more=100.0}")
    assert microseconds(shared) == microseconds(before)


def test_a_plan_whose_launches_fill_the_device_stays_as_it_is() -> None:
    """All products of a large MLP are on branch 0, and no byte is spent on them."""
    program, one = plan(LARGE), plan(LARGE, multi_stream="no")
    assert {launch.op.data for launch in program.launches if launch.branch_number} <= {"advance"}
    assert program.peak_bytes == one.peak_bytes


@pytest.mark.parametrize("block", range(4))
def test_random_plans_compute_the_same_in_any_order(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        module = module_of(random_plan(seed))
        expected = ran(module, seed)
        for order in range(3):
            assert ran(shuffled(module, 100 * seed + order), seed) == expected, f"{seed} {order}"


def test_mutated_plans_are_refused_or_compute_the_same_in_any_order(some: Some) -> None:
    """With launches on other branches too, which decides nothing that is computed."""
    outcomes = Counter[str]()
    seeds = some(range(250))
    for seed in seeds:
        choose = random.Random(seed)
        module = parse_module(base_text(choose.randrange(8)))
        mutator = Mutator(choose, module)
        if choose.random() < 0.7:
            with suppress(KeyError):
                choose.choice(Mutator.CHANGES)(mutator)
        for launch in mutator.program.launches:
            if choose.random() < 0.2:
                launch.set_branch(choose.choice([0, 1, 2, 5, 15, 16, -1]))
        if choose.random() < 0.7:
            with suppress(KeyError, AicfError):
                mutator.repair()
        try:
            parsed = parse_module(str(module))
        except LocatedError:
            outcomes["refused"] += 1
            continue
        outcomes["ran"] += 1
        expected = ran(parsed, seed)
        for order in range(2):
            assert ran(shuffled(parsed, order), seed) == expected, seed
    assert min(outcomes["ran"], outcomes["refused"]) > len(seeds) / 10, outcomes


@cache
def base_text(seed: int) -> str:
    """A plan with branches of a random function."""
    return str(module_of(random_plan(seed, 16)))


@pytest.mark.parametrize("index", [1, -7], ids=["checked", "skipped"])
@pytest.mark.parametrize("memory", ["", "more=1.0 small=0"], ids=["apart", "tight"])
@pytest.mark.parametrize("name", ["4x8x3", "transformer"])
def test_a_train_step_computes_the_same_in_any_order(name: str, memory: str, index: int) -> None:
    """Also one whose check fails, so that its updates are skipped."""
    module = stages(name, plan_memory=memory)["plan"]
    expected = ran(module, 0, index)
    orders = set[tuple[str, ...]]()
    for seed in range(8):
        other = shuffled(module, seed)
        orders.add(tuple(launch.symbol for launch in find_program(other).launches))
        assert ran(other, 0, index) == expected, seed
    assert len(orders) > 2


def test_what_may_be_skipped_is_behind_every_check() -> None:
    program = plan("transformer")
    order = reach_of(edges_of(program))
    checks = [i for i, launch in enumerate(program.launches) if launch.op.data.startswith("check")]
    skipped = [i for i, launch in enumerate(program.launches) if launch.predicate_slot is not None]
    assert checks and skipped
    assert all((check, late) in order for check in checks for late in skipped)


@pytest.mark.parametrize("name", ["64x256x2", "transformer"])
def test_no_edge_is_there_for_nothing(name: str) -> None:
    """A plan that lacks any one of them is refused, on one branch as between two."""
    program = plan(name)
    for number, launch in enumerate(program.launches):
        for early in launch.waits_for:
            copy = module_of(program).clone()
            other = find_program(copy).launches[number]
            other.set_after([edge for edge in launch.waits_for if edge != early])
            with pytest.raises(VerifyException, match=r"must be after"):
                find_program(copy).verify()


@names
def test_the_plan_for_the_cpu_stays_as_it_is(name: str) -> None:
    assert str(stages(name, "cpu")["plan"]) == str(stages(name, "cpu", multi_stream="no")["plan"])


@pytest.mark.parametrize("most", [1, 2, 3, 16])
def test_random_launches_are_scheduled_within_the_rules(most: int) -> None:
    """The longest path and what is long are on branch 0; it never takes longer than one branch."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 40))
        lengths = [float(length) for length in rng.integers(1, 9, count)]
        edges = [
            set(map(int, rng.integers(0, index, rng.integers(0, 4)))) if index else set[int]()
            for index in range(count)
        ]
        branches = assign(lengths, edges, most, 6.0)
        assert all(0 <= branch < most for branch in branches)
        assert sorted(set(branches)) == list(range(max(branches) + 1))
        assert not any(branches[index] for index in paths(lengths, edges).critical)
        assert not any(branch for branch, length in zip(branches, lengths, strict=True) if length > 6)
        ends = ends_of(lengths, with_branch_order(edges, branches))
        assert max(ends_of(lengths, edges)) <= max(ends) <= sum(lengths)

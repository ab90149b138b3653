"""Plans compute what the function says, bit for bit; their text is in tests/lit/passes/bufferize.mlir."""

from __future__ import annotations

import numpy as np
import pytest
from costs import Some
from kernel_programs import random_arguments, random_function
from plans import PlanMemory, make_plan, shuffle
from programs import run_by_name, run_pipeline
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import _C
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.hazards import Range, Reach, memory_of
from aicf_mlir.text.parsing import parse_module

STAGES = ["lower,select-kernels,bufferize,plan-memory", "lower,fuse,dce,select-kernels,bufferize,plan-memory"]


def kernel_results(
    module: ModuleOp, passes: str, values: dict[str, np.ndarray]
) -> dict[tuple[str, str], np.ndarray]:
    """What the function computes at the level from which the plan is made, so that equality is exact."""
    return run_by_name(run_pipeline(module, passes.partition(",select-kernels")[0]), values)


@pytest.mark.parametrize("passes", STAGES, ids=["unfused", "fused"])
@pytest.mark.parametrize("block", range(4))
def test_random_plans_equal_their_functions_bitwise(block: int, passes: str) -> None:
    """Two steps: results, updated arguments, and arguments that nothing updates."""
    for seed in range(block * 25, block * 25 + 25):
        module = random_function(seed)
        values = random_arguments(module, seed)
        memory = PlanMemory(make_plan(module, passes))
        memory.fill(values)
        for _ in range(2):
            expected = kernel_results(module, passes, values)
            memory.run()
            found = memory.named("output", "grad")
            for (role, name), array in expected.items():
                if role == "update":
                    values[name] = array
                else:
                    np.testing.assert_array_equal(found[role, name], array, err_msg=f"{seed} {name}")
            for (_, name), array in memory.named("input", "buffer", "param", "host_scalar").items():
                np.testing.assert_array_equal(array, values[name], err_msg=f"{seed} {name}")


def written_ranges(plan: ProgramOp) -> list[tuple[list[Range], list[Range]]]:
    """Bytes that each launch reads and writes."""
    slots = plan.slots
    return [
        (
            [memory_of(slots[name]) for name in launch.reads],
            [
                memory_of(slots[name])
                for name in [*launch.writes, *([launch.scratch] if launch.scratch else [])]
            ],
        )
        for launch in plan.launches
    ]


def conflicts(plan: ProgramOp) -> set[tuple[int, int]]:
    """Pairs of launches that touch the same byte, one of them writing: the plain definition, pair by pair."""
    ranges = written_ranges(plan)
    return {
        (early, late)
        for late, (late_reads, late_writes) in enumerate(ranges)
        for early, (early_reads, early_writes) in enumerate(ranges[:late])
        if any(a.overlaps(b) for a in early_writes for b in late_reads + late_writes)
        or any(a.overlaps(b) for a in early_reads for b in late_writes)
    }


@pytest.mark.parametrize("passes", ["lower,fuse,select-kernels,bufferize", STAGES[1]], ids=["slots", "bytes"])
def test_after_is_exactly_the_hazards(passes: str, some: Some) -> None:
    """Every conflict is ordered, every order follows from conflicts, and no edge follows from the others."""
    for seed in some(range(60)):
        plan = make_plan(random_function(seed, 24), passes)
        index = {launch.symbol: i for i, launch in enumerate(plan.launches)}
        edges = [[index[name] for name in launch.waits_for] for launch in plan.launches]
        needed = conflicts(plan)
        assert {(early, late) for late, before in enumerate(edges) for early in before} <= needed
        reach = Reach()
        for before in edges:
            reach.add(before)
        assert all(pair in reach for pair in needed)
        for late, before in enumerate(edges):
            for edge in before:
                assert not any((edge, other) in reach for other in before if other != edge), f"{seed} @{late}"


def test_any_legal_order_of_launches_computes_the_same(some: Some) -> None:
    """`after` says all there is to say on order: launches may be shuffled within it."""
    for seed in some(range(40)):
        module = random_function(seed, 24)
        values = random_arguments(module, seed)
        plan = make_plan(module)
        memory = PlanMemory(plan)
        memory.fill(values)
        memory.run()
        expected = memory.named("output", "grad", "param")
        shuffle(plan, np.random.default_rng(seed))
        memory = PlanMemory(plan)
        memory.fill(values)
        memory.run()
        for key, array in memory.named("output", "grad", "param").items():
            np.testing.assert_array_equal(array, expected[key], err_msg=f"{seed} {key}")


def test_the_text_is_the_same_for_every_clone(some: Some) -> None:
    for seed in some(range(20)):
        module = random_function(seed)
        assert str(make_plan(module)) == str(make_plan(module))


def test_temporaries_of_elementwise_chains_share_one_slot() -> None:
    module = parse_module(
        "func.func @f(%x: tensor<64xf32>) -> tensor<f32> {\n"
        + "\n".join(
            f'  %{i} = kernel.tanh x(%{i - 1 if i else "x"}) id "tanh_cpu" : tensor<64xf32>'
            for i in range(20)
        )
        + "\n  %y = kernel.reduce_sum x(%19) {dims = array<i64: 0>} : (tensor<64xf32>) -> tensor<f32>\n"
        "  func.return %y : tensor<f32>\n}"
    )
    plan = make_plan(module)
    assert [slot.symbol for slot in plan.slots.values() if slot.role.data == "temp"] == ["v0"]


def test_the_executor_of_the_runtime_agrees(some: Some) -> None:
    """The plan of a random function on the CPU, run by `_C.Executor`."""
    for seed in some(range(20)):
        module = random_function(seed)
        values = random_arguments(module, seed)
        memory = PlanMemory(make_plan(module))
        memory.fill(values)
        arenas = {name: _C.Arena("cpu", len(data)) for name, data in memory.arenas.items()}
        for slot in memory.program.slots.values():
            if slot.role == "const":
                memory.view(slot)[...] = slot.value
        for name, arena in arenas.items():
            arena.write(0, bytes(memory.arenas[name]))
        memory.run()
        executor = _C.Executor("cpu", arenas, memory.program.launches)
        executor.run()
        assert executor.trace() == [launch.kernel_id.data for launch in memory.plan.launches]
        expected = memory.named("output", "grad", "param")
        for name, arena in arenas.items():
            memory.arenas[name][:] = arena.read(0, arena.nbytes)
        for key, array in memory.named("output", "grad", "param").items():
            scale = np.abs(expected[key]).max()
            near = 1e-9 if array.dtype == np.float64 else 1e-6  # the kernel's own arithmetic is of that type
            np.testing.assert_allclose(
                array, expected[key], rtol=near, atol=near * scale, err_msg=f"{seed} {key}"
            )

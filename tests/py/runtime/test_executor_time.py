"""A step that is measured is a step: the same bits as a run, counted nowhere, on each device."""

from __future__ import annotations

import numpy as np
import pytest
from test_executor import LOSS, PLANNED, STEP_LAUNCHES, W, contents, make_arenas, make_step, view

from aicf_mlir import _C, KernelError, StateError


def test_it_computes_what_a_run_computes() -> None:
    (measured, one), (whole, two), (run, three) = (make_step() for _ in range(3))
    for _ in range(3):
        rows = measured.time_launches()
        seconds = whole.time_step()
        run.run()
        assert [name for name, _ in rows] == run.trace(choices=True)
        assert [name.partition("[")[0] for name, _ in rows] == PLANNED
        assert all(time >= 0 for _, time in rows) and seconds > 0
    assert contents(one) == contents(two) == contents(three)
    assert view(one, LOSS) > 0


def test_it_counts_nowhere() -> None:
    executor, _ = make_step()
    executor.time_launches()
    executor.time_step()
    stats = executor.stats()
    assert (stats["launches"], stats["runs"], stats["replays"]) == (0, 0, 0)
    assert executor.trace() == []
    executor.run()
    executor.capture()
    executor.time_step()
    assert executor.trace() == PLANNED and executor.captured
    executor.replay(2)
    assert executor.stats()["launches"] == 3 * len(PLANNED)


def test_it_takes_a_batch_and_leaves_the_active_executor_alone() -> None:
    arenas, session = make_arenas(), _C.Session()
    inputs = [("input", 0, 48), ("input", 256, 32)]
    first, second = (
        _C.Executor("cpu", arenas, STEP_LAUNCHES, None, inputs, session, index)  # type: ignore[arg-type]
        for index in range(2)
    )
    first.run()
    x, t = np.full((4, 3), 2.0, np.float32), np.zeros((4, 2), np.float32)
    before = view(arenas, W).copy()
    second.time_launches(0, (x.ctypes.data, t.ctypes.data))
    assert (session.active, session.steps) == (0, 1)
    assert (view(arenas, ("input", 0, "f32", (4, 3))) == 2.0).all()
    assert not np.array_equal(view(arenas, W), before)
    with pytest.raises(KernelError, match="expected a batch of 2 addresses, got 1"):
        second.time_step(0, (x.ctypes.data,))


def test_an_empty_plan_takes_no_time_to_speak_of() -> None:
    executor, _ = make_step([])
    assert executor.time_launches() == []
    assert executor.time_step() >= 0


def test_it_does_not_mix_with_an_open_graph() -> None:
    executor, arenas = make_step()
    before = contents(arenas)
    _C.graph_begin("cpu")
    try:
        for call in (executor.time_launches, executor.time_step):
            with pytest.raises(StateError, match="while a graph is being recorded"):
                call()
    finally:
        _C.graph_end("cpu")
    assert contents(arenas) == before


def test_marks_of_each_device_are_in_order(device: str) -> None:
    """Copies one behind the other, more than the queue of a stream holds: a time for each."""
    name, count = ("cpu" if device == "cpu" else "cuda:0"), 1000
    arena = _C.Arena(name, 4096 * 2)
    arena.write(0, bytes(range(256)) * 16)
    row: _C.Launch = {
        "op": "copy",
        "kernel_id": f"copy_{device}",
        "inputs": [("memory", 0, "f32", (1024,))],
        "outputs": [("memory", 4096, "f32", (1024,))],
        "counts": None,
        "attrs": {},
        "workspace": None,
    }
    executor = _C.Executor(name, {"memory": arena}, [row] * count)
    times = executor.time_launches()
    assert len(times) == count and all(seconds >= 0 for _, seconds in times)
    assert executor.time_step() > 0
    assert arena.read(4096, 4096) == bytes(range(256)) * 16

"""The executor on a hand-written plan: an SGD step with momentum of the model y = x · w, on the CPU."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import children
import numpy as np
import pytest

from aicf_mlir import _C, KernelError, OpKind, PlanError, SelectionError, StateError

B, K, N = 4, 3, 2
SIZES = {
    "input": 512,
    "param": 256,
    "state": 512,
    "host_scalar": 1024,
    "const": 256,
    "temp": 768,
    "output": 256,
}

X = ("input", 0, "f32", (B, K))
T = ("input", 256, "f32", (B, N))
W = ("param", 0, "f32", (K, N))
BUF = ("state", 0, "f32", (K, N))
STEP = ("state", 256, "f32", (1,))
LR, DECAY, MOMENTUM, DAMPENING = (("host_scalar", 256 * i, "f64", ()) for i in range(4))
ONE = ("const", 0, "f32", ())
Y = ("temp", 0, "f32", (B, N))
DY = ("temp", 256, "f32", (B, N))
DW = ("temp", 512, "f32", (K, N))
LOSS = ("output", 0, "f32", ())

Launch = dict[str, Any]

COUNTS = {
    OpKind.Advance: ((1, 0, 0, 0, 0), (1, 0, 0)),
    OpKind.SgdStep: ((1,) * 8, (1, 1, 0)),
}
"""Of the ops with optional operands, as the plan here uses them."""


def launch(kind: OpKind, kernel_id: str, inputs: list[Any], outputs: list[Any], **attrs: Any) -> Launch:
    return {
        "op": kind,
        "kernel_id": kernel_id,
        "inputs": inputs,
        "outputs": outputs,
        "counts": COUNTS.get(kind),
        "attrs": attrs,
        "workspace": None,
    }


STEP_LAUNCHES = [
    launch(OpKind.Gemm, "gemm_cpu_blas", [X, W], [Y]),
    launch(OpKind.MseLoss, "mse_loss_cpu", [Y, T], [LOSS]),
    launch(OpKind.MseGrad, "mse_grad_cpu", [ONE, Y, T], [DY]),
    launch(OpKind.Gemm, "gemm_cpu_blas", [X, DY], [DW], trans_a=True),
    launch(OpKind.Advance, "advance_cpu", [STEP], [STEP]),
    launch(
        OpKind.SgdStep,
        "sgd_step_cpu",
        [W, DW, BUF, LR, DECAY, MOMENTUM, DAMPENING, STEP],
        [W, BUF],
        groups=[0],
        indices=[0],
    ),
]
PLANNED = [str(row["kernel_id"]) for row in STEP_LAUNCHES]


def view(arenas: dict[str, _C.Arena], slot: tuple[str, int, str, tuple[int, ...]]) -> np.ndarray[Any, Any]:
    arena, offset, dtype, shape = slot
    count = int(np.prod(shape, dtype=np.int64))
    numpy_dtype = np.float64 if dtype == "f64" else np.float32
    return np.frombuffer(memoryview(arenas[arena]), numpy_dtype, count, offset).reshape(shape)


def make_arenas() -> dict[str, _C.Arena]:
    arenas = {name: _C.Arena("cpu", nbytes) for name, nbytes in SIZES.items()}
    rng = np.random.default_rng(0)
    for slot in (X, T, W):
        view(arenas, slot)[...] = rng.standard_normal(slot[3])
    for slot, value in ((LR, 0.1), (DECAY, 0.01), (MOMENTUM, 0.9), (DAMPENING, 0.0), (ONE, 1.0)):
        view(arenas, slot)[...] = value
    return arenas


def make_step(launches: list[Launch] | None = None) -> tuple[_C.Executor, dict[str, _C.Arena]]:
    arenas = make_arenas()
    return _C.Executor("cpu", arenas, STEP_LAUNCHES if launches is None else launches), arenas  # type: ignore[arg-type]


def contents(arenas: dict[str, _C.Arena]) -> dict[str, bytes]:
    return {name: arena.read(0, arena.nbytes) for name, arena in arenas.items()}


def edited(index: int, **changes: Any) -> list[Launch]:
    launches = deepcopy(STEP_LAUNCHES)
    launches[index].update(changes)
    return launches


# ---- running ----


def test_a_run_computes_the_step() -> None:
    executor, arenas = make_step()
    x, t, w = (view(arenas, slot).astype(np.float64) for slot in (X, T, W))
    buf = np.zeros_like(w)
    for step in range(3):
        executor.run()
        y = x @ w
        np.testing.assert_allclose(view(arenas, LOSS), np.mean((y - t) ** 2), rtol=1e-5)
        gradient = x.T @ (2 * (y - t) / y.size) + 0.01 * w
        buf = gradient if step == 0 else 0.9 * buf + gradient
        w = w - 0.1 * buf
        np.testing.assert_allclose(view(arenas, W), w, rtol=1e-5)
    assert view(arenas, STEP).tolist() == [3.0]


def test_replays_equal_runs_bitwise() -> None:
    eager, eager_arenas = make_step()
    graph, graph_arenas = make_step()
    graph.capture()
    assert contents(graph_arenas) == contents(make_arenas())  # a capture runs nothing
    for lr in (0.1, 0.05):
        view(eager_arenas, LR)[...] = lr
        view(graph_arenas, LR)[...] = lr
        for _ in range(5):
            eager.run()
        graph.replay(5)
    assert contents(eager_arenas) == contents(graph_arenas)


def test_the_trace_names_what_ran() -> None:
    executor, _ = make_step()
    assert executor.trace() == []
    executor.run()
    assert executor.trace() == PLANNED
    executor.capture()
    executor.replay(3)
    assert executor.trace() == PLANNED


def test_a_kernel_edited_by_hand_runs() -> None:
    executor, arenas = make_step(edited(0, kernel_id="gemm_cpu_plain"))
    executor.run()
    assert executor.trace()[0] == "gemm_cpu_plain"
    np.testing.assert_allclose(view(arenas, Y), view(arenas, X) @ view(make_arenas(), W), rtol=1e-5)


def test_steps_allocate_nothing() -> None:
    executor, _ = make_step()
    executor.run()
    executor.capture()
    before = _C.memory_stats("cpu")
    executor.run()
    executor.replay(100)
    assert _C.memory_stats("cpu") == before
    stats = executor.stats()
    assert stats["launches_per_step"] == 6
    assert (stats["runs"], stats["replays"], stats["launches"]) == (2, 100, 612)
    assert stats["live_bytes"] == before["live_bytes"] >= sum(SIZES.values())


def test_the_executor_keeps_its_arenas_alive() -> None:
    executor, arenas = make_step()
    loss = view(arenas, LOSS)
    del arenas
    gc.collect()
    executor.run()
    assert loss > 0


# ---- states ----


def test_calls_in_the_wrong_state() -> None:
    executor, arenas = make_step()
    with pytest.raises(StateError, match=r"there is nothing to replay; call capture first"):
        executor.replay()
    executor.capture()
    with pytest.raises(StateError, match=r"already captured; call reset first"):
        executor.capture()
    executor.replay(2)
    before = contents(arenas)
    executor.reset()
    assert not executor.captured
    assert contents(arenas) == before
    with pytest.raises(StateError, match=r"call capture first"):
        executor.replay()
    executor.capture()
    executor.replay(0)
    with pytest.raises(KernelError, match=r"replayed 0 or more times, got -1"):
        executor.replay(-1)
    with pytest.raises(KernelError, match="without a place of the loss"):
        executor.replay(1, loss=arenas["temp"].ptr)
    assert contents(arenas) == before


def test_a_step_does_not_mix_with_an_open_graph() -> None:
    executor, _ = make_step()
    _C.graph_begin("cpu")
    try:
        with pytest.raises(StateError, match=r"cannot run while a graph is being recorded"):
            executor.run()
        with pytest.raises(StateError, match=r"already being recorded"):
            executor.capture()
        assert not executor.captured
    finally:
        _C.graph_end("cpu")
    executor.run()


def test_a_second_thread_is_refused() -> None:
    class Over(Exception):
        pass

    def handler(signum: int, frame: object) -> None:
        raise Over

    executor, _ = make_step()
    executor.capture()
    calls = (
        executor.run,
        executor.capture,
        executor.replay,
        executor.reset,
        executor.time_launches,
        executor.time_step,
        executor.trace,
        executor.stats,
    )
    answers: list[str] = []

    def answer(call: Callable[[], object]) -> str:
        try:
            call()
        except StateError as error:
            return str(error)
        return "allowed"

    def call_beside() -> None:
        end = time.monotonic() + 60
        while answer(executor.stats) == "allowed" and time.monotonic() < end:
            pass  # the replay has not begun
        answers.extend(answer(call) for call in calls)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, handler)
    thread = threading.Thread(target=call_beside)
    try:
        thread.start()
        with pytest.raises(Over):
            executor.replay(10**12)
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, before)
    assert len(answers) == len(calls)
    assert all("in use by another thread; wait for its call to return" in text for text in answers)
    executor.run()


def test_a_signal_ends_a_long_replay_between_steps() -> None:
    class Alarm(Exception):
        pass

    def handler(signum: int, frame: object) -> None:
        raise Alarm

    executor, arenas = make_step()
    executor.capture()
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        start = time.monotonic()
        with pytest.raises(Alarm):
            executor.replay(10**12)
        assert time.monotonic() - start < 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    done = executor.stats()["replays"]
    assert view(arenas, STEP) == min(done, 2**24)  # whole steps only; f32 counts to 2^24
    executor.replay()
    assert executor.stats()["replays"] == done + 1


@pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)  # that is the point
def test_a_forked_child_is_refused() -> None:
    executor, _ = make_step()
    answer = children.fork(lambda: f"ran {executor.run()}")
    assert answer == "StateError: this step was created before fork(); create the step in the child process"
    executor.run()


# ---- plans that cannot run ----


@pytest.mark.parametrize(
    ("index", "changes", "message"),
    [
        (0, {"inputs": [X]}, r"launch 0 \(gemm, kernel \S*\): gemm: expected 2 inputs"),
        (
            0,
            {"inputs": [X, ("weights", 0, "f32", (K, N))]},
            r"input 1: no arena is called 'weights'; there are const, host_scalar, input",
        ),
        (
            0,
            {"inputs": [X, ("param", 256, "f32", (K, N))]},
            r"input 1: the slot f32\[3, 2\] of 24 bytes at offset 256 is outside",
        ),
        (
            0,
            {"inputs": [X, ("param", -4, "f32", (K, N))]},
            r"of 24 bytes at offset -4 is outside its arena of 256 bytes",
        ),
        (0, {"inputs": [X, ("param", 2**62, "f32", (K, N))]}, r"is outside its arena of 256 bytes"),
        (0, {"inputs": [X, ("param", 2, "f32", (K, N))]}, r"input 1: misaligned"),
        (0, {"inputs": [X, ("param", 0, "f32", (K, -N))]}, r"dimension 1 is negative"),
        (0, {"inputs": [X, ("param", 0, "f32", (2**40, 2**40))]}, r"more than 2\^63 bytes"),
        (0, {"inputs": [X, ("param", 0, "f64", (K, N))]}, r"gemm: .*f32.*f64"),
        (0, {"outputs": [("input", 0, "f32", (B, N))]}, r"output 0 overlaps input 0 in part"),
        (
            3,
            {"outputs": [("temp", 256, "f32", (K, N))]},
            r"launch 3 \(gemm, kernel \S*\): output 0 overlaps input 1 in part",
        ),
        (0, {"attrs": {"scale": 1.0}}, r"gemm has no attribute scale"),
        (0, {"attrs": {"trans_a": "yes"}}, r"attribute 'trans_a': expected a bool, got 'yes'"),
        (5, {"attrs": {}}, r"launch 5 \(sgd_step, kernel \S*\): sgd_step needs the attribute groups"),
        (
            0,
            {"kernel_id": ""},
            r"launch 0 \(gemm, kernel \S*\): no kernel id; write one, or run the pass select-kernels",
        ),
        (0, {"workspace": ("temp", 0, -8)}, r"needs a workspace of"),
        (0, {"workspace": ("temp", 8, 64)}, r"the workspace at offset 8 must start at a multiple of 256"),
        (0, {"workspace": ("temp", 256, 1024)}, r"the workspace of 1024 bytes at offset 256 is outside"),
        (0, {"workspace": ("temp", 0, 64)}, r"the workspace overlaps output 0"),
        (0, {"workspace": ("temp", 0)}, r"a workspace is a tuple \(arena, offset, nbytes\)"),
        (0, {"inputs": [X, ("param", 0, "f32")]}, r"a slot is a tuple \(arena, offset, dtype, shape\)"),
    ],
)
def test_refuses_a_plan_that_cannot_run(index: int, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_step(edited(index, **changes))


@pytest.mark.parametrize(
    ("kernel_id", "message"),
    [
        ("gemm_gpu", r"launch 0 \(gemm, kernel \S*\): no kernel is called 'gemm_gpu'; gemm has "),
        ("relu_cpu", r"launch 0 \(gemm, kernel \S*\): kernel 'relu_cpu' runs relu"),
        (
            "gemm_f32_naive",
            r"launch 0 \(gemm, kernel \S*\): kernel 'gemm_f32_naive' cannot run .* on cpu: runs on cuda",
        ),
    ],
)
def test_refuses_a_kernel_that_does_not_support_the_launch(kernel_id: str, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        make_step(edited(0, kernel_id=kernel_id))


def test_refuses_a_launch_that_is_not_whole() -> None:
    row = dict(STEP_LAUNCHES[0])
    del row["attrs"]
    with pytest.raises(PlanError, match=r"a launch needs the key 'attrs'"):
        make_step([row])
    with pytest.raises(KernelError, match=r"kind of an operation is one of"):
        make_step(edited(0, op=77))


def test_an_empty_plan_runs() -> None:
    executor, _ = make_step([])
    executor.run()
    executor.capture()
    executor.replay(2)
    assert executor.trace() == []

"""The executor on a GPU, on the hand-written plan of test_executor: the same verbs, the same promises."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from test_executor import LR, SIZES, STEP, STEP_LAUNCHES, Launch, W, contents, make_arenas, make_step

from aicf_mlir import _C, KernelError, PlanError, StateError

pytestmark = pytest.mark.gpu

WORKSPACE_BYTES = 1 << 16


def cuda_launches() -> list[Launch]:
    """The launches of the plan with the kernels that this GPU selects, each with a workspace of its own."""
    target = _C.target_of("cuda:0")
    launches = deepcopy(STEP_LAUNCHES)
    for i, row in enumerate(launches):
        inputs, outputs = ([slot[2:] for slot in row[side]] for side in ("inputs", "outputs"))
        row["kernel_id"], nbytes = _C.select_kernel(
            row["op"], inputs, outputs, row["attrs"], target, counts=row["counts"]
        )
        row["workspace"] = ("workspace", i * WORKSPACE_BYTES, nbytes) if nbytes else None
        assert nbytes <= WORKSPACE_BYTES
    return launches


def make_cuda_step() -> tuple[_C.Executor, dict[str, _C.Arena]]:
    arenas = {name: _C.Arena("cuda", nbytes) for name, nbytes in SIZES.items()}
    for name, host in make_arenas().items():
        arenas[name].write(0, host)
    arenas["workspace"] = _C.Arena("cuda", len(STEP_LAUNCHES) * WORKSPACE_BYTES)
    return _C.Executor("cuda", arenas, cuda_launches()), arenas  # type: ignore[arg-type]


def test_a_run_agrees_with_the_cpu() -> None:
    cuda, cuda_arenas = make_cuda_step()
    cpu, cpu_arenas = make_step()
    for _ in range(5):
        cuda.run()
        cpu.run()
    for name in ("param", "state", "output"):
        ours, theirs = (
            np.frombuffer(arenas[name].read(0, SIZES[name]), np.float32)
            for arenas in (cuda_arenas, cpu_arenas)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert cuda.trace() == [row["kernel_id"] for row in cuda_launches()]


def test_replays_equal_runs_bitwise_on_any_stream() -> None:
    eager, eager_arenas = make_cuda_step()
    graph, graph_arenas = make_cuda_step()
    eager.run()
    graph.run()
    graph.capture()
    stream = torch.cuda.Stream()
    for lr in (0.1, 0.05):
        value = np.float64(lr).tobytes()
        eager_arenas["host_scalar"].write(LR[1], value)
        graph_arenas["host_scalar"].write(LR[1], value, stream.cuda_stream)  # obeyed by the replay behind it
        for _ in range(5):
            eager.run()
        graph.replay(5, stream.cuda_stream)
        _C.synchronize("cuda", stream.cuda_stream)
        assert contents(eager_arenas) == contents(graph_arenas)
    assert np.frombuffer(graph_arenas["state"].read(STEP[1], 4), np.float32) == 11
    assert graph.trace() == eager.trace()


def test_steps_allocate_nothing() -> None:
    executor, _ = make_cuda_step()
    executor.run()
    executor.capture()
    ours = _C.memory_stats("cuda")

    def taken() -> int:
        """Bytes of the device that some steps take, of which other processes take some too."""
        before = torch.cuda.mem_get_info()[0]
        executor.run()
        executor.replay(100)
        _C.synchronize("cuda")
        return before - torch.cuda.mem_get_info()[0]

    assert any(taken() == 0 for _ in range(50))
    assert _C.memory_stats("cuda") == ours
    with pytest.raises(StateError, match=r"already captured; call reset first"):
        executor.capture()
    executor.reset()


def test_arenas_on_the_device() -> None:
    arena, other = _C.Arena("cuda", 1 << 16), _C.Arena("cuda:0", 1 << 16)
    data = np.random.default_rng(0).bytes(1 << 16)
    arena.write(0, data)
    other.copy_from(arena)
    assert other.read(0, 1 << 16) == data
    tensor = torch.arange(4, dtype=torch.int32, device="cuda")
    other.copy_in(16, tensor.data_ptr(), 16)
    assert np.frombuffer(other.read(16, 16), np.int32).tolist() == [0, 1, 2, 3]
    host = _C.Arena("cpu", 1 << 16)
    host.copy_from(other)
    assert host.read(0, 1 << 16) == other.read(0, 1 << 16)
    with pytest.raises(BufferError):
        memoryview(arena)


def test_refuses_arenas_of_another_device() -> None:
    with pytest.raises(PlanError, match=r"arena 'const' is on cpu, the executor on cuda"):
        _C.Executor("cuda", make_arenas(), [])
    with pytest.raises(KernelError, match=r"there is no device cuda:99"):
        _C.Arena("cuda:99", 4)


def test_a_parameter_is_a_view_of_its_arena() -> None:
    executor, arenas = make_cuda_step()
    before = np.frombuffer(arenas["param"].read(0, 24), np.float32).reshape(W[3]).copy()
    executor.run()
    assert np.abs(np.frombuffer(arenas["param"].read(0, 24), np.float32).reshape(W[3]) - before).min() > 0

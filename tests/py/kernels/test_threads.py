"""The threads of CPU kernels: how many there are, and that nothing that is computed depends on it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest

from aicf_mlir import _C, KernelError, OpKind, op_call
from aicf_mlir.machine.environment import THREADS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = _C.threads()
    yield
    _C.set_threads(before)


def test_the_pool_under_load(tmp_path: Path) -> None:
    program = tmp_path / "pool_stress"
    sources = [ROOT / "tests/cpp/pool_stress.cpp", ROOT / "csrc/device/pool.cpp"]
    command = ["c++", "-std=c++17", "-O2", "-pthread", f"-I{ROOT / 'csrc'}", "-o", program, *sources]
    children.run(command, check=True)
    for _ in range(5):
        done = children.run([program])
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(done.stdout.splitlines()) == 10


def test_there_are_as_many_as_processors() -> None:
    code = "from aicf_mlir import _C; print(_C.threads())"
    environment = {name: value for name, value in os.environ.items() if name != THREADS}
    for changes, expected in (({}, len(os.sched_getaffinity(0))), ({THREADS: "3"}, 3)):
        done = children.run([sys.executable, "-c", code], env=environment | changes, check=True)
        assert int(done.stdout) == expected


@pytest.mark.parametrize("number", [0, -1, 257, 2**40])
def test_another_number_is_refused(number: int) -> None:
    with pytest.raises(KernelError, match=rf"expected a number of threads from 1 to 256, got {number}"):
        _C.set_threads(number)


SIDE = 256


def products(seed: int = 0) -> bytes:
    """Bits of products large enough for several threads."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((SIDE, SIDE)).astype(np.float32) for _ in range(2))
    out, gradient, bias_grad = np.empty_like(a), np.empty_like(a), np.empty(SIDE, np.float32)
    op_call(
        OpKind.GemmEpilogue,
        {"a": a, "b": b, "bias": b[0].copy()},
        {"out": out, "pre": gradient},
        {"act": "gelu"},
    )
    op_call(
        OpKind.GemmEpilogue, {"a": a, "b": out}, {"out": gradient, "bias_grad": bias_grad}, {"trans_a": True}
    )
    return out.tobytes() + gradient.tobytes() + bias_grad.tobytes()


def test_the_same_bits_for_any_number() -> None:
    found: set[bytes] = set()
    for number in (1, 2, 3, 7):
        _C.set_threads(number)
        found.add(products())
    assert len(found) == 1


def test_a_forked_child_has_threads_of_its_own() -> None:
    _C.set_threads(3)
    expected = products()
    assert children.fork(lambda: f"{_C.threads()} {products() == expected}") == "3 True"
    assert products() == expected


def test_two_callers_at_once() -> None:
    _C.set_threads(3)
    expected = [products(seed) for seed in range(4)]
    found: list[list[bytes]] = [[], [], [], []]

    def work(seed: int) -> None:
        for _ in range(20):
            found[seed].append(products(seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for number in (1, 4, 2, 3):
        _C.set_threads(number)
    for thread in threads:
        thread.join()
    assert found == [[bits] * 20 for bits in expected]


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def scalar(value: float) -> np.ndarray:
    return np.array(value)


N = 300
X, ROW, STEPS = floats(N, N), floats(N), np.ones(1, np.float32)
TARGET = np.arange(N) % N
SEVERAL = [X, ROW, floats(70_001), floats(1)]
LARGE: dict[OpKind, tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]] = {
    OpKind.EltwiseGelu: ({"x": X}, {"y": (N, N)}, {}),
    OpKind.EltwiseAdd: ({"x": X, "y": ROW}, {"z": (N, N)}, {}),
    OpKind.EltwiseMul: ({"x": X, "y": X}, {"z": (N, N)}, {}),
    OpKind.BiasAdd: ({"x": X, "bias": ROW}, {"y": (N, N)}, {}),
    OpKind.Copy: ({"x": X.T}, {"y": (N, N)}, {}),
    OpKind.ReduceSum: ({"x": X}, {"y": (N,)}, {"dims": [1]}),
    OpKind.Softmax: ({"x": X}, {"y": (N, N)}, {}),
    OpKind.SoftmaxGrad: ({"dy": X, "saved": X}, {"dx": (N, N)}, {}),
    OpKind.MseLoss: ({"y": X, "t": X.T.copy()}, {"loss": ()}, {}),
    OpKind.MseGrad: ({"dloss": floats(), "y": X, "t": X.T.copy()}, {"dy": (N, N)}, {}),
    OpKind.CrossEntropyGrad: (
        {"dloss": floats(), "logits": X, "target": TARGET},
        {"dlogits": (N, N)},
        {"reduction": "mean"},
    ),
    OpKind.SgdStep: (
        {"p": X, "g": X, "buf": X, "lr": scalar(0.1), "weight_decay": scalar(0.1)}
        | {"momentum": scalar(0.9), "dampening": scalar(0.0), "step": STEPS},
        {"p": (N, N), "buf": (N, N)},
        {"groups": [0], "indices": [0]},
    ),
    OpKind.AdamStep: (
        dict.fromkeys("pgm", SEVERAL)
        | {"v": [x * x for x in SEVERAL]}
        | {name: scalar(0.1) for name in ("lr", "beta1", "beta2", "eps", "weight_decay")}
        | {"bc1_inv": np.linspace(1, 2, 4), "bc2_inv": np.ones(4)},
        {name: [x.shape for x in SEVERAL] for name in "pmv"},
        {"groups": [0] * 4, "indices": [0, 1, 2, 3]},
    ),
}


def poisoned(shape: Any) -> Any:
    """NaN: one array, or for several shapes a list."""
    if isinstance(shape, list):
        return [poisoned(one) for one in shape]
    return np.full(shape, np.nan, np.float32)


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_loop_gives_the_same_bits(kind: OpKind) -> None:
    inputs, shapes, attrs = LARGE[kind]
    found: set[bytes] = set()
    for number in (1, 2, 3, 7):
        _C.set_threads(number)
        outputs = {name: poisoned(shape) for name, shape in shapes.items()}
        op_call(kind, inputs, outputs, attrs)
        results = [x for value in outputs.values() for x in (value if isinstance(value, list) else [value])]
        assert not any(np.isnan(result).any() for result in results)
        found.add(b"".join(result.tobytes() for result in results))
    assert len(found) == 1


def test_tensors_of_one_update_are_as_each_alone() -> None:
    inputs, shapes, _ = LARGE[OpKind.AdamStep]
    together = {name: poisoned(shape) for name, shape in shapes.items()}
    _C.set_threads(7)
    op_call(OpKind.AdamStep, inputs, together, {"groups": [0] * 4, "indices": [0, 1, 2, 3]})
    for i in range(len(SEVERAL)):
        alone = {name: poisoned(shape[i]) for name, shape in shapes.items()}
        one = {name: value[i] if isinstance(value, list) else value for name, value in inputs.items()}
        op_call(OpKind.AdamStep, one, alone, {"groups": [0], "indices": [i]})
        for name, result in alone.items():
            assert result.tobytes() == together[name][i].tobytes()


def test_sums_of_columns_give_the_same_bits() -> None:
    x, found = floats(2048, 512), set[bytes]()
    for number in (1, 2, 3, 7):
        _C.set_threads(number)
        y = np.empty(512, np.float32)
        op_call(OpKind.ReduceSum, [x], [y], {"dims": [0]})
        found.add(y.tobytes())
    assert len(found) == 1
    np.testing.assert_allclose(y, x.sum(0, dtype=np.float64), rtol=1e-4, atol=1e-4)

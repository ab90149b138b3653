"""Calls recorded between graph_begin and graph_end, and replayed."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
import torch
from test_op_call import f32

from aicf_mlir import _C, KernelError, OpKind, StateError, op_call


def test_a_graph_records_and_replays() -> None:
    x, out = f32(4), f32(4, value=0.0)
    _C.graph_begin("cpu")
    op_call(OpKind.EltwiseRelu, [x], [out])
    op_call(OpKind.EltwiseAdd, [x, out], [x])
    graph = _C.graph_end("cpu")
    before = x.copy()
    assert (out == 0).all()  # recorded, not run
    _C.graph_launch(graph, 2)
    once = before + np.maximum(before, 0)
    np.testing.assert_array_equal(x, once + np.maximum(once, 0))
    _C.graph_reset(graph)
    with pytest.raises(StateError, match=r"this graph was reset"):
        _C.graph_launch(graph)


def test_a_graph_keeps_its_tensors_alive() -> None:
    class Watched(np.ndarray):  # an array that takes weak references
        pass

    x = f32(4).view(Watched)
    out = f32(4, value=0.0)
    alive = weakref.ref(x)
    _C.graph_begin()
    op_call(OpKind.EltwiseRelu, [x], [out])
    graph = _C.graph_end()
    expected = np.maximum(np.asarray(x), 0)
    del x
    gc.collect()
    assert alive() is not None
    _C.graph_launch(graph)
    np.testing.assert_array_equal(out, expected)
    _C.graph_reset(graph)
    gc.collect()
    assert alive() is None


def test_graph_calls_in_the_wrong_order() -> None:
    with pytest.raises(
        StateError, match=r"no graph is being recorded on this thread; call graph_begin first"
    ):
        _C.graph_end("cpu")
    _C.graph_begin("cpu")
    with pytest.raises(StateError, match=r"already being recorded"):
        _C.graph_begin("cpu")
    with pytest.raises(KernelError, match=r"expected 2 inputs"):  # a refused call leaves the recording open
        op_call(OpKind.EltwiseAdd, [f32(2)], [f32(2)])
    graph = _C.graph_end("cpu")
    _C.graph_launch(graph, 0)
    with pytest.raises(KernelError, match=r"launched 0 or more times, got -1"):
        _C.graph_launch(graph, -1)
    _C.graph_begin("cpu")
    with pytest.raises(StateError, match=r"cannot be launched while one is being recorded"):
        _C.graph_launch(graph)
    _C.graph_end("cpu")


def test_other_threads_run_while_one_records() -> None:
    x, out = f32(4), f32(4, value=0.0)
    _C.graph_begin("cpu")
    thread = threading.Thread(target=lambda: op_call(OpKind.EltwiseRelu, [x], [out]))
    thread.start()
    thread.join()
    _C.graph_end("cpu")
    np.testing.assert_array_equal(out, np.maximum(x, 0))


@pytest.mark.gpu
def test_cuda_graph_records_and_replays() -> None:
    x = torch.ones(4, device="cuda")
    op_call(OpKind.EltwiseAdd, [x, x.clone()], [torch.empty_like(x)])  # loads the kernel before the capture
    y = torch.ones(4, device="cuda")
    _C.graph_begin("cuda")
    op_call(OpKind.EltwiseAdd, [x, y], [x])
    graph = _C.graph_end("cuda")
    assert x.tolist() == [1.0] * 4
    _C.graph_launch(graph, 3, torch.cuda.current_stream().cuda_stream)
    assert x.tolist() == [4.0] * 4

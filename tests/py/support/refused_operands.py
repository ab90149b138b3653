"""What the schema of each kernel op refuses, a row for each rule, with the message."""

# ruff: noqa: E501  (a rule is a row, a row is a line)
from __future__ import annotations

from typing import Any

import refused_chains

Specs = list[tuple[str, tuple[int, ...]]]
Named = dict[str, Specs]
"""By operand, where some are optional or of several tensors."""


def f32(*shapes: tuple[int, ...]) -> Specs:
    return [("f32", shape) for shape in shapes]


SCALAR: Specs = [("f64", ())]
INVERSE: Specs = [("f64", (2,))]
TARGET: Specs = [("i64", (4,))]
STEP: Specs = [("f32", (2,))]
PINS: Named = dict.fromkeys(("beta1", "beta2", "bc1_pin", "bc2_pin"), SCALAR)
STATUS: Specs = [("i64", (3,))]
CHECKED: Named = {"status": STATUS}
ORDER: Named = {"keys": [("i32", (4,))], "places": [("i32", (4,))]}


def sgd(tensors: int) -> Named:
    return {"p": f32((3,)) * tensors, "g": f32((3,)) * tensors, "lr": SCALAR, "weight_decay": SCALAR}


def momentum(tensors: int) -> Named:
    return sgd(tensors) | {"buf": f32((3,)) * tensors, "momentum": SCALAR, "dampening": SCALAR, "step": STEP}


def scattered(x: Specs, index: Specs, src: Specs) -> Named:
    return {"x": x, "index": index, "src": src}


P: Named = {"p": f32((3,))}
BUF: Named = {"p": f32((3,)), "buf": f32((3,))}
ADAM: Named = {
    **dict.fromkeys(("p", "g", "m", "v"), f32((3,))),
    **dict.fromkeys(("lr", "beta1", "beta2", "eps", "weight_decay"), SCALAR),
    **dict.fromkeys(("bc1_inv", "bc2_inv"), INVERSE),
}
MOMENTS: Named = dict.fromkeys(("p", "m", "v"), f32((3,)))
IMAGES = {"x": f32((2, 4, 5, 5)), "w": f32((6, 2, 3, 3))}
CONVOLVED = {"y": f32((2, 6, 3, 3))}
WINDOWS: dict[str, Any] = {"stride": [1, 1], "dilation": [1, 1], "low": [0, 0], "size": [3, 3], "groups": 2}

ATTENTION: Named = {"query": f32((2, 4, 3, 8)), "key": f32((2, 2, 5, 8)), "value": f32((2, 2, 5, 6))}
DRAWN: Named = {"random": [("i64", (2,))]}
ATTENDED: Named = {"out": f32((2, 4, 3, 6)), **dict.fromkeys(("largest", "total"), f32((2, 4, 3)))}
ATTENTION_GRAD: Named = {"dout": ATTENDED["out"], **ATTENTION, **ATTENDED}
HEAD_GRADIENTS: Named = {f"d{name}": specs for name, specs in ATTENTION.items()}
SCALE = {"scale": 0.5}

REFUSED: list[tuple[str, Specs | Named, Specs | Named, dict[str, Any], str]] = [
    ("relu", f32((3,)), f32((3,), (3,)), {}, "expected 1 input and 1 output, got 1 input and 2 outputs"),
    ("relu", [("i32", (3,))], [("i32", (3,))], {}, "x: expected element type f32, f64, f16 or bf16, got i32[3]"),
    ("relu", f32((3,)), f32((4,)), {}, "y: expected f32[3], got f32[4]"),
    ("add", f32((3,), (4,)), f32((3,)), {}, "expected shapes that broadcast together, got f32[3] and f32[4]"),
    ("add", f32((3, 1), (4,)), f32((3,)), {}, "z: expected f32[3, 4], got f32[3]"),
    ("add", [("f32", (3,)), ("f64", (3,))], f32((3,)), {}, "y: expected element type f32, got f64[3]"),
    ("relu_bwd", f32((3,), (1,)), f32((3,)), {}, "saved value: expected f32[3], got f32[1]"),
    ("relu_bwd", f32((3,), (3,)), f32((1,)), {}, "dx: expected f32[3], got f32[1]"),
    ("bias_add", f32((), (1,)), f32(()), {}, "x: expected rank 1 or more, got f32[]"),
    ("bias_add", f32((2, 3), (2,)), f32((2, 3)), {}, "bias: expected f32[3], got f32[2]"),
    ("gemm", f32((3,), (3,)), f32(()), {}, "a: expected rank 2 or more, got f32[3]"),
    ("gemm", f32((2, 3, 4), (4, 5)), f32((2, 3, 5)), {}, "b: expected rank 3, got f32[4, 5]"),
    ("gemm", f32((2, 3, 4), (3, 4, 5)), f32((2, 3, 5)), {}, "expected equal leading dimensions, got a f32[2, 3, 4] and b f32[3, 4, 5]"),
    ("gemm", f32((3, 4), (5, 6)), f32((3, 6)), {}, "expected equal inner dimensions, got 4 of a f32[3, 4] and 5 of b f32[5, 6]"),
    ("gemm", f32((3, 4), (3, 4)), f32((4, 3)), {"trans_a": True}, "out: expected f32[4, 4], got f32[4, 3]"),
    ("gemm", [("f16", (3, 3))] * 2, [("f16", (3, 3))], {"allow_tf32": True}, "allow_tf32: expected operands of f32, got f16"),
    ("gemm_epilogue", {"a": f32((3, 4)), "b": f32((4, 5)), "bias": f32((5,), (5,))}, {"out": f32((3, 5))}, {}, "bias: expected one tensor or none, got 2"),
    ("gemm_epilogue", {"a": f32((3, 4)), "b": f32((4, 5)), "bias": f32((3,))}, {"out": f32((3, 5))}, {}, "bias: expected f32[5], got f32[3]"),
    ("gemm_epilogue", {"a": f32((3, 4)), "b": f32((4, 5))}, {"out": f32((3, 5)), "pre": f32((3,))}, {}, "pre: expected f32[3, 5], got f32[3]"),
    ("gemm_epilogue", {"a": f32((3, 4)), "b": f32((4, 5))}, {"out": f32((3, 5)), "bias_grad": f32((5,))}, {}, "bias_grad: expected f32[3], got f32[5]"),
    ("gemm_epilogue", {"a": f32((2, 3, 4)), "b": f32((2, 4, 5))}, {"out": f32((2, 3, 5)), "bias_grad": f32((3,))}, {}, "bias_grad: expected operands of rank 2, got out f32[2, 3, 5]"),
    ("gemm_epilogue", {"a": f32((3, 4)), "b": f32((4, 5)), "saved": f32((5,))}, {"out": f32((3, 5))}, {"act_grad": "relu"}, "saved: expected f32[3, 5], got f32[5]"),
    ("gemm_epilogue", {"a": f32((3, 4)), "b": f32((4, 5))}, {"out": f32((3, 5))}, {"act_grad": "relu"}, "saved: expected the value that act_grad takes, got none"),
    ("gemm_epilogue", {"a": f32((3, 4)), "b": f32((4, 5)), "saved": f32((3, 5))}, {"out": f32((3, 5))}, {}, "saved: expected act_grad beside it, got none"),
    ("gemm_epilogue", {"a": f32((3, 4)), "b": f32((4, 5)), "bias": f32((5,)), "saved": f32((3, 5))}, {"out": f32((3, 5))}, {"act_grad": "relu", "act": "tanh"}, "act_grad: expected neither act nor bias beside it, got act and bias"),
    ("reduce_sum", f32((2, 3)), f32((2,)), {"dims": [2]}, "dims: expected dimensions from 0 to 1 of f32[2, 3], got 2"),
    ("reduce_sum", f32((2, 3)), f32((2,)), {"dims": [1, 1]}, "dims: expected ascending dimensions without repetition, got 1 after 1"),
    ("reduce_sum", f32((2, 3)), f32((3,)), {"dims": [1]}, "y: expected f32[2] or f32[2, 1], got f32[3]"),
    ("softmax", TARGET, TARGET, {}, "x: expected element type f32, f64, f16 or bf16, got i64[4]"),
    ("softmax", f32((2, 3)), f32((3, 2)), {}, "y: expected f32[2, 3], got f32[3, 2]"),
    ("softmax_grad", f32((2, 3), (3,)), f32((2, 3)), {}, "saved: expected f32[2, 3], got f32[3]"),
    ("softmax_grad", f32((2, 3), (2, 3)), f32((2,)), {}, "dx: expected f32[2, 3], got f32[2]"),
    ("mse_loss", f32((2, 3), (2, 3)), f32((1,)), {}, "loss: expected f32[], got f32[1]"),
    ("mse_loss", f32((2, 3), (3,)), f32(()), {}, "t: expected f32[2, 3], got f32[3]"),
    ("mse_grad", f32((1,), (2,), (2,)), f32((2,)), {}, "dloss: expected f32[], got f32[1]"),
    ("mse_grad", f32((), (2,), (2,)), f32((3,)), {}, "dy: expected f32[2], got f32[3]"),
    ("cross_entropy", f32((4,)) + TARGET, f32(()), {}, "logits: expected rank 2, got f32[4]"),
    ("cross_entropy", f32((3, 4)) + TARGET, f32(()), {}, "target: expected i64[3], got i64[4]"),
    ("cross_entropy", f32((4, 4), (4,)), f32(()), {}, "target: expected i64[4], got f32[4]"),
    ("cross_entropy", f32((4, 3)) + TARGET, f32(()), {"label_smoothing": 1.5}, "label_smoothing: expected a number from 0 to 1, got 1.5"),
    ("cross_entropy_grad", f32((), (4, 3)) + TARGET, f32((4,)), {}, "dlogits: expected f32[4, 3], got f32[4]"),
    ("check_index", {"status": TARGET, "target": TARGET}, CHECKED, {"classes": [2], "code": 1}, "status: expected i64[3], got i64[4]"),
    ("check_index", {"status": STATUS, "target": TARGET}, {"status": TARGET}, {"classes": [2], "code": 1}, "status': expected i64[3], got i64[4]"),
    ("check_index", {"status": STATUS, "target": TARGET}, CHECKED, {"classes": [2], "code": 0}, "code: expected 1 or more, got 0"),
    ("check_index", {"status": STATUS, "target": TARGET}, CHECKED, {"classes": [0], "code": 1}, "classes: expected 1 or more, got 0"),
    ("check_index", {"status": STATUS, "target": TARGET * 2}, CHECKED, {"classes": [2], "code": 1}, "classes: expected one for each of 2 targets, got 1"),
    ("check_index", {"status": STATUS, "target": TARGET}, CHECKED, {"classes": [2], "ignore_index": [1, 2], "code": 1}, "ignore_index: expected one for each of 1 targets, got 2"),
    ("check_index", {"status": STATUS, "target": f32((4,))}, CHECKED, {"classes": [2], "code": 1}, "target[0]: expected i64, i32 or i1, got f32[4]"),
    ("check_index", {"status": STATUS}, CHECKED, {"classes": [2], "code": 1}, "target: expected one tensor or more, got none"),
    ("check_finite", {"status": STATUS}, {"status": STATUS}, {"code": 1}, "x: expected one tensor or more, got none"),
    ("check_finite", {"status": STATUS, "x": f32((4,)) + TARGET}, {"status": STATUS}, {"code": 1}, "x[1]: expected element type f32, f64, f16 or bf16, got i64[4]"),
    ("check_ranks", {"status": STATUS, "of_ranks": TARGET}, CHECKED, {"code": 1}, "of_ranks: expected rank 2, got i64[4]"),
    ("check_ranks", {"status": STATUS, "of_ranks": [("i64", (2, 4))]}, CHECKED, {"code": 1}, "of_ranks: expected i64[2, 3], got i64[2, 4]"),
    ("all_gather", {"x": f32((2,))}, {"y": f32((3, 2))}, {"group": "dp", "ranks": 0}, "ranks: expected 1 to 65536, got 0"),
    ("all_gather", {"x": f32((2,))}, {"y": f32((3, 2))}, {"group": "", "ranks": 3}, "group: expected a name, got none"),
    ("all_gather", {"x": f32((2,))}, {"y": f32((2, 2))}, {"group": "dp", "ranks": 3}, "y: expected f32[3, 2], got f32[2, 2]"),
    ("all_gather", {"x": f32((1,) * 8)}, {"y": f32((2,))}, {"group": "dp", "ranks": 3}, "x: expected at most 7 dimensions, got f32[1, 1, 1, 1, 1, 1, 1, 1]"),
    ("all_gather_status", {"x": f32((2,)), "status": STATUS}, {"y": f32((2, 2)), "statuses": [("i64", (3, 3))]}, {"group": "dp", "ranks": 3}, "y: expected f32[3, 2], got f32[2, 2]"),
    ("all_gather_status", {"x": f32((2,)), "status": TARGET}, {"y": f32((3, 2)), "statuses": [("i64", (3, 3))]}, {"group": "dp", "ranks": 3}, "status: expected i64[3], got i64[4]"),
    ("all_gather_status", {"x": f32((2,)), "status": STATUS}, {"y": f32((3, 2)), "statuses": [("i64", (2, 3))]}, {"group": "dp", "ranks": 3}, "statuses: expected i64[3, 3], got i64[2, 3]"),
    ("all_to_all", {"x": f32((3, 2))}, {"y": f32((3, 2))}, {"group": "", "ranks": 3}, "group: expected a name, got none"),
    ("all_to_all", {"x": f32((2, 3))}, {"y": f32((2, 3))}, {"group": "dp", "ranks": 3}, "x: expected a row for each of 3 ranks, got f32[2, 3]"),
    ("all_to_all", {"x": f32(())}, {"y": f32(())}, {"group": "dp", "ranks": 1}, "x: expected a row for each of 1 ranks, got f32[]"),
    ("all_to_all", {"x": f32((3, 2))}, {"y": f32((3, 1))}, {"group": "dp", "ranks": 3}, "y: expected f32[3, 2], got f32[3, 1]"),
    ("all_reduce", {"x": f32((2,))}, {"y": f32((2,))}, {"group": "", "ranks": 3}, "group: expected a name, got none"),
    ("all_reduce", {"x": f32((2,))}, {"y": f32((3, 2))}, {"group": "dp", "ranks": 3}, "y: expected f32[2], got f32[3, 2]"),
    ("all_reduce", {"x": [("i64", (2,))]}, {"y": f32((2,))}, {"group": "dp", "ranks": 3}, "x: expected element type f32, f64, f16 or bf16, got i64[2]"),
    ("all_reduce", {"x": [("bf16", (2,))]}, {"y": [("bf16", (2,))]}, {"group": "dp", "ranks": 3}, "y: expected f32[2], got bf16[2]"),
    ("all_reduce_status", {"x": f32((2,)), "status": STATUS}, {"y": f32((2,)), "statuses": [("i64", (2, 3))]}, {"group": "dp", "ranks": 3}, "statuses: expected i64[3, 3], got i64[2, 3]"),
    ("copy", f32((2, 3)), [("i64", (3, 2))], {}, "y: expected i64[2, 3], got i64[3, 2]"),
    ("multi_tensor_copy", {"x": []}, {"x": []}, {}, "x: expected one tensor or more, got none"),
    ("multi_tensor_copy", {"x": f32((2, 3), (4,))}, {"x": f32((2, 3))}, {}, "x': expected 2 tensors, as many as x has, got 1"),
    ("multi_tensor_copy", {"x": [("f32", (2, 3)), ("f64", (4,))]}, {"x": [("f32", (2, 3)), ("f64", (4,))]}, {}, "x[1]: expected element type f32, got f64[4]"),
    ("multi_tensor_copy", {"x": f32((2, 3), (4,))}, {"x": f32((2, 3), (5,))}, {}, "x'[1]: expected f32[4], got f32[5]"),
    ("multi_tensor_copy", {"x": f32((2, 3), (4,))}, {"x": [("f16", (2, 3)), ("f32", (4,))]}, {}, "x'[1]: expected f16[4], got f32[4]"),
    ("scatter_add", scattered(TARGET, TARGET, f32((4, 3))), {"x": f32((2, 3))}, {}, "x[0]: expected element type f32, f64, f16 or bf16, got i64[4]"),
    ("scatter_add", scattered(f32((3,)), TARGET, f32((4, 3))), {"x": f32((2, 3))}, {}, "x[0]: expected rank 2, got f32[3]"),
    ("scatter_add", scattered(f32((2, 3)), f32((4,)), f32((4, 3))), {"x": f32((2, 3))}, {}, "index[0]: expected element type i64, got f32[4]"),
    ("scatter_add", scattered(f32((2, 3)), [("i64", (2, 2))], f32((4, 3))), {"x": f32((2, 3))}, {}, "index[0]: expected rank 1, got i64[2, 2]"),
    ("scatter_add", scattered(f32((2, 3)), TARGET, f32((3, 3))), {"x": f32((2, 3))}, {}, "src[0]: expected f32[4, 3], got f32[3, 3]"),
    ("scatter_add", scattered(f32((2, 3)), TARGET, f32((4, 3))), {"x": f32((4, 3))}, {}, "x'[0]: expected f32[2, 3], got f32[4, 3]"),
    ("scatter_add", scattered(f32((2, 3), (5, 3)), TARGET * 2, f32((4, 3), (3, 3))), {"x": f32((2, 3), (5, 3))}, {}, "src[1]: expected f32[4, 3], got f32[3, 3]"),
    ("scatter_add", scattered([("f32", (2, 3)), ("f64", (2, 3))], TARGET * 2, [("f32", (4, 3)), ("f64", (4, 3))]), {"x": [("f32", (2, 3)), ("f64", (2, 3))]}, {}, "x[1]: expected element type f32, got f64[2, 3]"),
    ("scatter_add", scattered(f32((2, 3), (2, 3)), TARGET, f32((4, 3))), {"x": f32((2, 3), (2, 3))}, {}, "expected an index and a src for each of 2 x, got 1 and 1"),
    ("scatter_add", scattered([], [], []), {"x": []}, {}, "x: expected one tensor or more, got none"),
    ("scatter_add", {**scattered(f32((2, 3), (2, 3)), TARGET * 2, f32((4, 3), (4, 3))), "at": TARGET}, {"x": f32((2, 3), (2, 3))}, {}, "at: expected one x, got 2"),
    ("scatter_add", {**scattered(f32((2, 3)), TARGET, f32((7, 3))), "at": [("i32", (4,))]}, {"x": f32((2, 3))}, {}, "at: expected i64[4], got i32[4]"),
    ("scatter_add", scattered(f32((2, 3)), [("i32", (4,))], f32((4, 3))), {"x": f32((2, 3))}, {}, "index[0]: expected element type i64, got i32[4]"),
    ("sort_rows", {"index": f32((4,))}, ORDER, {"rows": 2, "source_rows": 4}, "index: expected element type i64, got f32[4]"),
    ("sort_rows", {"index": TARGET, "at": [("i64", (5,))]}, ORDER, {"rows": 2, "source_rows": 4}, "at: expected i64[4], got i64[5]"),
    ("sort_rows", {"index": TARGET}, {**ORDER, "keys": TARGET}, {"rows": 2, "source_rows": 4}, "keys: expected i32[4], got i64[4]"),
    ("sort_rows", {"index": TARGET}, ORDER, {"rows": 1 << 31, "source_rows": 4}, "rows: expected 0 to 2^31 - 1, got 2147483648"),
    ("sort_rows", {"index": TARGET}, ORDER, {"rows": 2, "source_rows": -1}, "source_rows: expected 0 to 2^31 - 1, got -1"),
    ("scatter_rows", TARGET + TARGET + TARGET, TARGET, {}, "x: expected rank 2, got i64[4]"),
    ("scatter_rows", f32((2, 3), (4,), (4, 3)), f32((2, 3)), {}, "index: expected element type i64, got f32[4]"),
    ("scatter_rows", [*f32((2, 3)), *TARGET, ("f64", (4, 3))], f32((2, 3)), {}, "src: expected f32[4, 3], got f64[4, 3]"),
    ("scatter_rows", [("i64", (2, 3)), *TARGET, ("i64", (4, 3))], [("i64", (2, 3))], {"kind": "max"}, "x: expected element type f32, f64, f16 or bf16, got i64[2, 3]"),
    ("argsort", f32(()), [("i64", ())], {"count": 0}, "x: expected rank 1 or more, got f32[]"),
    ("argsort", f32((2, 3)), [("i64", (2, 3))], {}, "needs the attribute count"),
    ("argsort", f32((2, 3)), [("i64", (2, 4))], {"count": 4}, "count: expected 0 to 3, got 4"),
    ("argsort", f32((2, 3)), [("i64", (2, 2))], {"count": 2, "first": 2}, "first: expected 0 to 1, got 2"),
    ("argsort", f32((2, 3)), [("i64", (2, 3))], {"count": 2}, "index: expected i64[2, 2], got i64[2, 3]"),
    ("argsort", [("i1", (1 << 31,))], [("i64", (1,))], {"count": 1}, "x: expected rows of less than 2^31 elements, got i1[2147483648]"),
    ("scan", {"x": f32((2, 3))}, {"y": f32((2, 3))}, {"kind": "sum", "dim": 2}, "dim: expected a dimension of f32[2, 3], got 2"),
    ("scan", {"x": [("i64", (2,))]}, {"y": [("i64", (2,))]}, {"kind": "logaddexp", "dim": 0}, "x: expected element type f32, f64, f16 or bf16, got i64[2]"),
    ("scan", {"x": [("i1", (2,))]}, {"y": [("i1", (2,))]}, {"kind": "sum", "dim": 0}, "x: expected numbers, got i1[2]"),
    ("scan", {"x": f32((2,))}, {"y": f32((2,))}, {"kind": "linear", "dim": 0}, "factor: expected one tensor beside kinds linear, exp_linear and segment_sum, and none beside others"),
    ("scan", {"x": f32((2,)), "factor": f32((2,))}, {"y": f32((2,))}, {"kind": "sum", "dim": 0}, "factor: expected one tensor beside kinds linear, exp_linear and segment_sum, and none beside others"),
    ("scan", {"x": f32((2,)), "factor": f32((3,))}, {"y": f32((2,))}, {"kind": "linear", "dim": 0}, "factor: expected f32[2], got f32[3]"),
    ("scan", {"x": f32((2,))}, {"y": f32((2,))}, {"kind": "argmax", "dim": 0}, "y: expected i64[2], got f32[2]"),
    ("convolution", IMAGES | {"x": [("i64", (2, 4, 5, 5))]}, CONVOLVED, WINDOWS, "x: expected element type f32, f64, f16 or bf16, got i64[2, 4, 5, 5]"),
    ("convolution", IMAGES | {"x": f32((2, 4))}, CONVOLVED, WINDOWS, "x: expected rank 3 to 5, got f32[2, 4]"),
    ("convolution", IMAGES, CONVOLVED, WINDOWS | {"stride": [1]}, "stride: expected 2 numbers, got 1"),
    ("convolution", IMAGES, CONVOLVED, WINDOWS | {"low": [0, -1]}, "low: expected numbers from 0 on, got -1"),
    ("convolution", IMAGES, CONVOLVED, WINDOWS | {"groups": 0}, "groups: expected 1 or more, got 0"),
    ("convolution", IMAGES, CONVOLVED, WINDOWS | {"groups": 4}, "w: expected 4 channels in 4 groups, got f32[6, 2, 3, 3]"),
    ("convolution", IMAGES | {"bias": f32((4,))}, CONVOLVED, WINDOWS, "bias: expected f32[6], got f32[4]"),
    ("convolution", IMAGES, CONVOLVED, WINDOWS | {"act": "gelu"}, "act: expected none or relu, got gelu"),
    ("convolution", IMAGES, {"y": f32((2, 6, 4, 3))}, WINDOWS, "y: expected f32[2, 6, 3, 3], got f32[2, 6, 4, 3]"),
    ("convolution", {name: [("f16", shape)] for name, [(_, shape)] in IMAGES.items()}, {"y": [("f16", (2, 6, 3, 3))]}, WINDOWS | {"allow_tf32": True}, "allow_tf32: expected operands of f32, got f16"),
    ("convolution_input_grad", {"dy": f32((2, 6, 3, 3)), "w": f32((5, 2, 3, 3))}, {"dx": f32((2, 4, 5, 5))}, WINDOWS | {"size": [5, 5]}, "w: expected 6 outputs in 2 groups, got f32[5, 2, 3, 3]"),
    ("convolution_input_grad", {"dy": f32((2, 6, 3, 3)), "w": f32((6, 2, 3, 3))}, {"dx": f32((2, 2, 5, 5))}, WINDOWS | {"size": [5, 5]}, "dx: expected f32[2, 4, 5, 5], got f32[2, 2, 5, 5]"),
    ("convolution_weight_grad", {"x": f32((2, 4, 5, 5)), "dy": f32((3, 6, 3, 3))}, {"dw": f32((6, 2, 3, 3))}, WINDOWS, "dy: expected 2 images, and channels in 2 groups, got x f32[2, 4, 5, 5] and dy f32[3, 6, 3, 3]"),
    ("convolution_weight_grad", {"x": f32((2, 4, 5, 5)), "dy": f32((2, 6, 3, 3))}, {"dw": f32((6, 4, 3, 3))}, WINDOWS, "dw: expected f32[6, 2, 3, 3], got f32[6, 4, 3, 3]"),
    ("attention", ATTENTION | {"query": f32((2, 4, 3))}, ATTENDED, SCALE, "query: expected rank 4, got f32[2, 4, 3]"),
    ("attention", ATTENTION | {"query": [("i64", (2, 4, 3, 8))]}, ATTENDED, SCALE, "query: expected element type f32, f64, f16 or bf16, got i64[2, 4, 3, 8]"),
    ("attention", ATTENTION | {"key": f32((2, 3, 5, 8))}, ATTENDED, SCALE, "expected heads of queries that are a multiple of those of keys, got query f32[2, 4, 3, 8] and key f32[2, 3, 5, 8]"),
    ("attention", ATTENTION | {"query": f32((2, 4, 3, 0))}, ATTENDED, SCALE, "query: expected elements in a head, got f32[2, 4, 3, 0]"),
    ("attention", ATTENTION | {"key": f32((2, 2, 5, 7))}, ATTENDED, SCALE, "key: expected f32[2, 2, 5, 8], got f32[2, 2, 5, 7]"),
    ("attention", ATTENTION | {"value": f32((2, 2, 4, 6))}, ATTENDED, SCALE, "value: expected f32[2, 2, 5, 6], got f32[2, 2, 4, 6]"),
    ("attention", ATTENTION | {"mask": [("f16", (1, 1, 3, 5))]}, ATTENDED, SCALE, "mask: expected element type i1 or f32, got f16[1, 1, 3, 5]"),
    ("attention", ATTENTION | {"mask": f32((3, 5))}, ATTENDED, SCALE, "mask: expected rank 4, got f32[3, 5]"),
    ("attention", ATTENTION | {"mask": f32((2, 2, 3, 5))}, ATTENDED, SCALE, "mask: expected dimensions of scores f32[2, 4, 3, 5] or 1, got f32[2, 2, 3, 5]"),
    ("attention", ATTENTION, ATTENDED | {"out": f32((2, 4, 3, 8))}, SCALE, "out: expected f32[2, 4, 3, 6], got f32[2, 4, 3, 8]"),
    ("attention", ATTENTION, ATTENDED | {"largest": f32((2, 4, 5))}, SCALE, "largest: expected f32[2, 4, 3], got f32[2, 4, 5]"),
    ("attention", ATTENTION, ATTENDED | {"total": f32((2, 4, 5))}, SCALE, "total: expected f32[2, 4, 3], got f32[2, 4, 5]"),
    ("attention", ATTENTION, ATTENDED, {}, "needs the attribute scale"),
    ("attention", ATTENTION, ATTENDED, SCALE | {"p": 0.1}, "p: expected 0 without random, got 0.1"),
    ("attention", ATTENTION | DRAWN, ATTENDED, SCALE | {"p": 1.0}, "p: expected at least 0 and at most 1 - 2^-16, got 1"),
    ("attention", ATTENTION | DRAWN, ATTENDED, SCALE | {"p": 0.1, "site": -1}, "site: expected 32 bits, got -1"),
    ("attention", ATTENTION | {"random": [("i64", (3,))]}, ATTENDED, SCALE | {"p": 0.1}, "random: expected i64[2], got i64[3]"),
    ("attention_grad", ATTENTION_GRAD | DRAWN, HEAD_GRADIENTS, SCALE | {"p": -0.1}, "p: expected at least 0 and at most 1 - 2^-16, got -0.1"),
    ("attention_grad", ATTENTION_GRAD | {"dout": f32((2, 4, 3, 8))}, HEAD_GRADIENTS, SCALE, "dout: expected f32[2, 4, 3, 6], got f32[2, 4, 3, 8]"),
    ("attention_grad", ATTENTION_GRAD | {"largest": f32((2, 3, 4))}, HEAD_GRADIENTS, SCALE, "largest: expected f32[2, 4, 3], got f32[2, 3, 4]"),
    ("attention_grad", ATTENTION_GRAD | {"total": f32((2, 3, 4))}, HEAD_GRADIENTS, SCALE, "total: expected f32[2, 4, 3], got f32[2, 3, 4]"),
    ("attention_grad", ATTENTION_GRAD, HEAD_GRADIENTS | {"dkey": f32((2, 4, 5, 8))}, SCALE, "dkey: expected f32[2, 2, 5, 8], got f32[2, 4, 5, 8]"),
    ("attention_mask_grad", ATTENTION_GRAD | {"mask": [("i1", (1, 4, 3, 5))]}, {"dmask": f32((1, 4, 3, 5))}, SCALE, "mask: expected numbers, got i1[1, 4, 3, 5]"),
    ("attention_mask_grad", ATTENTION_GRAD | {"mask": f32((1, 4, 1, 5))}, {"dmask": f32((1, 4, 1, 5))}, SCALE, "dmask: expected f32[1, 4, 3, 5], got f32[1, 4, 1, 5]"),
    ("advance", {"step": [("f64", (2,))]}, {"step": [("f64", (2,))]}, {}, "step: expected f32[n] with n of 1 or more, got f64[2]"),
    ("advance", {"step": f32((0,))}, {"step": f32((0,))}, {}, "step: expected f32[n] with n of 1 or more, got f32[0]"),
    ("advance", {"step": STEP, "beta1": SCALAR}, {"step": STEP}, {}, "beta2: expected beta1, beta2, bc1_pin and bc2_pin, or none of them"),
    ("advance", {"step": STEP, **PINS}, {"step": STEP}, {}, "bc1_inv: expected one tensor beside beta1, got none"),
    ("advance", {"step": STEP}, {"step": STEP, "bc1_inv": INVERSE}, {}, "bc1_inv: expected beta1 beside it, got none"),
    ("advance", {"step": STEP, **PINS, "beta1": f32(())}, {"step": STEP, "bc1_inv": INVERSE, "bc2_inv": INVERSE}, {}, "beta1: expected f64[], got f32[]"),
    ("advance", {"step": STEP, **PINS}, {"step": STEP, "bc1_inv": SCALAR, "bc2_inv": INVERSE}, {}, "bc1_inv: expected f64[2], got f64[]"),
    ("advance", {"step": STEP, **PINS}, {"step": STEP, "bc1_inv": INVERSE, "bc2_inv": [("f64", (3,))]}, {}, "bc2_inv: expected f64[2], got f64[3]"),
    ("sgd_step", sgd(1), P, {"groups": []}, "groups: expected the group of each of 1 tensors, got 0"),
    ("sgd_step", sgd(1), P, {"groups": [1]}, "groups: expected indices from 0 to 0, one for each lr, got 1"),
    ("sgd_step", sgd(1) | {"lr": SCALAR * 2}, P, {"groups": [1]}, "groups: expected every group to have a tensor, got none in group 0"),
    ("sgd_step", sgd(1) | {"g": f32((4,))}, P, {"groups": [0]}, "g[0]: expected f32[3], got f32[4]"),
    ("sgd_step", sgd(1) | {"g": [("bf16", (4,))]}, P, {"groups": [0]}, "g[0]: expected bf16[3], got bf16[4]"),
    ("sgd_step", sgd(1) | {"g": [("f64", (3,))]}, P, {"groups": [0]}, "g[0]: expected element type f32, f16 or bf16 beside a parameter of f32, got f64[3]"),
    ("sgd_step", sgd(1) | {"p": [("f64", (3,))]}, {"p": [("f64", (3,))]}, {"groups": [0]}, "g[0]: expected f64[3], got f32[3]"),
    ("sgd_step", sgd(1) | {"p": [("bf16", (3,))], "g": [("f16", (3,))]}, {"p": [("bf16", (3,))]}, {"groups": [0]}, "g[0]: expected bf16[3], got f16[3]"),
    ("sgd_step", momentum(1) | {"buf": [("bf16", (3,))]}, BUF, {"groups": [0], "indices": [0]}, "buf[0]: expected f32[3], got bf16[3]"),
    ("adam_step", ADAM | {"g": [("i32", (3,))]}, MOMENTS, {"groups": [0], "indices": [1]}, "g[0]: expected element type f32, f16 or bf16 beside a parameter of f32, got i32[3]"),
    ("sgd_step", sgd(1) | {"g": []}, P, {"groups": [0]}, "g: expected 1, as many as of p, got 0"),
    ("sgd_step", sgd(1), {}, {"groups": [0]}, "p': expected 1 tensor, as many as p has, got 0"),
    ("sgd_step", sgd(1) | {"lr": f32(())}, P, {"groups": [0]}, "lr[0]: expected f64[], got f32[]"),
    ("sgd_step", sgd(1) | {"weight_decay": []}, P, {"groups": [0]}, "weight_decay: expected 1, as many as of lr, got 0"),
    ("sgd_step", sgd(1) | {"momentum": SCALAR}, P, {"groups": [0]}, "momentum: expected buf beside it, got none"),
    ("sgd_step", sgd(1), P, {"groups": [0], "nesterov": True}, "nesterov: expected buf beside it, got none"),
    ("sgd_step", sgd(1), P, {"groups": [0], "indices": [0]}, "indices: expected buf beside it, got none"),
    ("sgd_step", momentum(1) | {"step": SCALAR}, BUF, {"groups": [0], "indices": [0]}, "step[0]: expected f32[n] with n of 1 or more, got f64[]"),
    ("sgd_step", momentum(1), BUF, {"groups": [0]}, "indices: expected an element of step for each of 1 tensors, got 0"),
    ("sgd_step", momentum(1), BUF, {"groups": [0], "indices": [-1]}, "indices: expected an element of step f32[2] of group 0, got -1 for tensor 0"),
    ("adam_step", ADAM, MOMENTS | {"v": f32((4,))}, {"groups": [0], "indices": [1]}, "v'[0]: expected f32[3], got f32[4]"),
    ("adam_step", ADAM | {"vmax": f32((3,))}, MOMENTS, {"groups": [0], "indices": [1]}, "vmax': expected 1 tensor, as many as vmax has, got 0"),
    ("adam_step", ADAM | {"bc1_inv": STEP}, MOMENTS, {"groups": [0], "indices": [1]}, "bc1_inv[0]: expected f64[n] with n of 1 or more, got f32[2]"),
    ("adam_step", ADAM | {"bc2_inv": SCALAR}, MOMENTS, {"groups": [0], "indices": [1]}, "bc2_inv[0]: expected f64[2], got f64[]"),
    ("adam_step", ADAM, MOMENTS, {"groups": [0], "indices": []}, "indices: expected an element of bc1_inv for each of 1 tensors, got 0"),
    ("adam_step", ADAM, MOMENTS, {"groups": [0], "indices": [1, 0]}, "indices: expected an element of bc1_inv for each of 1 tensors, got 2"),
    ("adam_step", ADAM, MOMENTS, {"groups": [0], "indices": [2]}, "indices: expected an element of bc1_inv f64[2] of group 0, got 2 for tensor 0"),
    *(
        (op, inputs, outputs, {"body": "", **attrs}, message)
        for op, inputs, outputs, attrs, message in (
            ("map", {"x": f32((4, 3))}, {"y": f32((4, 3))}, {}, "needs the attribute shape"),
            ("map", {"x": f32((4, 3), (3,))}, {"y": f32((4, 3))}, {"shape": [4, 3]}, "x[1]: expected shape [4, 3], got f32[3]"),
            ("map", {"x": f32((4, 3))}, {"y": f32((4, 3), (3,))}, {"shape": [4, 3]}, "y[1]: expected shape [4, 3], got f32[3]"),
            ("map", {"x": f32((4, 3))}, {}, {"shape": [4, 3]}, "y: expected one tensor or more, got none"),
            ("map", {"x": f32((4, 3))}, {"y": f32((4, 3))}, {"shape": [4, 3], "reduced": 1}, "reduced: expected 0, got 1"),
            ("map", {"table": f32((4, 3))}, {"y": f32((4, 3))}, {"shape": [1] * 9}, "shape: expected 8 dimensions or fewer, got [1, 1, 1, 1, 1, 1, 1, 1, 1]"),
            ("map", {"table": f32((4, 3))}, {"y": f32((4, 3))}, {"shape": [-1]}, "shape: expected sizes of 0 or more, got [-1]"),
            ("rowwise", {"x": f32((4, 3))}, {"y": f32((4,))}, {"shape": [4, 3]}, "reduced: expected 1 or more, and no more dimensions than shape has, got 0"),
            ("rowwise", {"x": f32((4, 3))}, {"y": f32((4,))}, {"shape": [4, 3], "reduced": 3}, "reduced: expected 1 or more, and no more dimensions than shape has, got 3"),
            ("rowwise", {"x": f32((4, 3))}, {"y": f32((4, 3), (3,), (2,))}, {"shape": [4, 3], "reduced": 1}, "y[2]: expected shape [4, 3] or [4] or [3], got f32[2]"),
            ("multi_tensor_map", {"x": f32((4, 3))}, {"y": f32((4, 3))}, {}, "needs the attribute segments"),
            ("multi_tensor_map", {"x": f32((4, 3))}, {"y": f32((4, 3))}, {"segments": 0}, "segments: expected 1 or more, got 0"),
            ("multi_tensor_map", {"x": f32((4,), (4,), (3,))}, {"y": f32((4,), (3,))}, {"segments": 2}, "x: expected as many tensors for each of 2 segments, got 3"),
            ("multi_tensor_map", {"x": f32((4,), (3,))}, {"y": f32((4,), (4,), (3,))}, {"segments": 2}, "y: expected as many tensors for each of 2 segments, got 3"),
            ("multi_tensor_map", {"x": f32((4,), (3,))}, {}, {"segments": 2}, "y: expected one tensor or more for each segment, got none"),
            ("multi_tensor_map", {"x": f32((4,), (4,))}, {"y": f32((4,), (3,))}, {"segments": 2}, "x[1]: expected the shape of f32[3] in segment 1, got f32[4]"),
            ("multi_tensor_map", {"x": f32((4,), (3,))}, {"y": f32((4,), (4,), (3,), (4,))}, {"segments": 2}, "y[3]: expected the shape of f32[3] in segment 1, got f32[4]"),
            ("multi_tensor_map", {"x": [("f32", (4,)), ("f64", (3,))]}, {"y": f32((4,), (3,))}, {"segments": 2}, "x[1]: expected f32 as in the first segment, got f64[3]"),
            ("horizontal", {"x": f32((4,))}, {}, {"members": "map(1 -> 1)"}, "y: expected one tensor or more, got none"),
            ("multi_tensor_rowwise", {"x": f32((4,), (3,))}, {"y": f32((), ())}, {"segments": 0}, "segments: expected 1 or more, got 0"),
            ("multi_tensor_rowwise", {}, {"y": f32((), ())}, {"segments": 2}, "x: expected one tensor or more for each segment, got none"),
            ("multi_tensor_rowwise", {"x": f32((4,), (3,))}, {}, {"segments": 2}, "y: expected one tensor or more for each segment, got none"),
            ("multi_tensor_rowwise", {"x": f32((4,), (3,))}, {"y": f32((), (), ())}, {"segments": 2}, "y: expected as many tensors for each of 2 segments, got 3"),
            ("multi_tensor_rowwise", {"x": f32((4,), (3,))}, {"y": f32((), (1,))}, {"segments": 2}, "y[1]: expected a single number, got f32[1]"),
            ("multi_tensor_rowwise", {"x": f32((4,), (3,), (3,), (3,))}, {"y": f32((), ())}, {"segments": 2}, "x[1]: expected the shape of f32[4] in segment 0, got f32[3]"),
            ("gemm_map", {"a": f32((4, 3)), "b": f32((4, 2))}, {"y": f32((4, 2))}, {}, "expected equal inner dimensions, got 3 of a f32[4, 3] and 4 of b f32[4, 2]"),
            ("gemm_map", {"a": f32((4, 3)), "b": f32((3, 2)), "x": f32((2,))}, {"y": f32((4, 2))}, {}, "x[0]: expected the shape of f32[4, 2], got f32[2]"),
            ("gemm_map", {"a": f32((4, 3)), "b": f32((3, 2))}, {"y": f32((4, 2), (2, 4))}, {}, "y[1]: expected the shape of f32[4, 2], got f32[2, 4]"),
            ("colwise", {"x": f32((4, 3))}, {"y": f32((3,), (4,))}, {"shape": [4, 3], "reduced": 1}, "y[1]: expected shape [4, 3] or [3], got f32[4]"),
        )
    ),
    *refused_chains.REFUSED,
]  # fmt: skip

"""Losses as a GPU has them, reductions and maps: what torch computes, by the interpreter and as CUDA C++ on the host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from cuda_on_host import HostKernels
from generated_cases import GeneratedCase, difference, span, view
from programs import run_pipeline, step_function
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp, Selection
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.ir.diagnostics import Source
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.text.parsing import make_context, parse_source

TORCH = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
PREBUILT = ("kernel.mse_loss", "kernel.mse_grad", "kernel.cross_entropy", "kernel.cross_entropy_grad")


def module_of(loss: str, types: tuple[str, ...], attrs: str, cotangent: str = "first") -> ModuleOp:
    """A loss of prediction and target, and its gradient; its cotangent is an argument, or the loss itself."""
    y, t = types
    scalar = f"tensor<{re.split('[x<]', y)[-1]}"
    dloss = "%s" if cotangent == "first" else "%loss"
    text = f"""
    func.func @f(%y: {y}, %t: {t}, %s: {scalar}) -> ({scalar}, {y}) {{
      %loss = nn.{loss} %y, %t {attrs} : ({y}, {t}) -> {scalar}
      %dy = nn.{loss}_grad {dloss}, %y, %t {attrs} : ({scalar}, {y}, {t}) -> {y}
      func.return %loss, %dy : {scalar}, {y}
    }}"""
    return parse_source(make_context(), Source("loss", text)).module


def fused(module: ModuleOp) -> ModuleOp:
    """As it is for a GPU; no prebuilt launch is left."""
    made = run_pipeline(module, "decompose,lower,fuse{target=sm_90},dce")
    assert not [op for op in made.walk() if op.name in PREBUILT]
    return made


def by_torch(loss: str, values: list[Array], options: dict[str, Any], squared: bool = False) -> list[Array]:
    """Loss and gradient in float64; with `squared` the cotangent is the loss."""
    y = torch.from_numpy(values[0].astype(np.float64)).requires_grad_()
    t = torch.from_numpy(values[1] if values[1].dtype.kind == "i" else values[1].astype(np.float64))
    found = getattr(torch.nn.functional, loss)(y, t, **options)
    found.backward(found.detach() if squared else torch.tensor(float(values[2]), dtype=torch.float64))
    assert y.grad is not None
    return [found.detach().numpy(), y.grad.numpy()]


def assert_close(got: list[Array], want: list[Array], element: str) -> None:
    epsilon = float(ml_dtypes.finfo(NUMPY_TYPES[element]).eps)
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(
            ours.astype(np.float64),
            theirs,
            rtol=16 * epsilon,
            atol=4 * epsilon * np.nanmax(np.abs(theirs), initial=1e-3),
        )


def launches(module: ModuleOp, values: list[Array]) -> Iterator[GeneratedCase]:
    """The generated launches of a function, on what the interpreter gives them."""
    function = step_function(module)
    known: dict[Any, Array] = dict(zip(function.args, values, strict=True))

    def note(op: Operation, results: Any) -> None:
        known.update(zip(op.results, map(np.asarray, results), strict=True))

    run_function(module, values, after_each=note)
    for op in function.body.block.ops:
        if not isinstance(op, GeneratedOp):
            continue
        made = Selection(module, "sm_90").generated(op.use)
        assert made is not None
        blocks: list[Array] = []
        for operand, tensor in zip(op.operands, made.operands, strict=True):
            root = kernel.block_of(operand)
            stored = np.ascontiguousarray(known[root]).astype(NUMPY_TYPES[element_name(element_type(root))])
            blocks.append(stored.reshape(-1)[: span(tensor)].copy())
        expected = tuple(np.asarray(known[result]) for result in op.results)
        yield GeneratedCase(str(op.attrs["body"]), made, tuple(blocks), expected)


def check(module: ModuleOp, values: list[Array], want: list[Array], element: str, folder: Path) -> None:
    made = fused(module)
    assert_close(list(run_function(made, values)), want, element)
    cases = list(launches(made, values))
    host = HostKernels([case.kernel for case in cases], folder)
    for case in cases:
        for number, block in enumerate(host.run(case)):
            why = difference(case, number, view(block, case.kernel.results[number]))
            assert not why, (case.name, number, why)


@pytest.mark.parametrize("element", TORCH)
@pytest.mark.parametrize(
    ("shape", "reduction"), [((7, 33), "mean"), ((5,), "sum"), ((2, 3, 64), "mean"), ((40, 900), "sum")]
)
def test_squared_error(element: str, shape: tuple[int, ...], reduction: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(len(shape))
    dtype = NUMPY_TYPES[element]
    values = [
        rng.uniform(-1, 1, shape).astype(dtype),
        rng.uniform(-1, 1, shape).astype(dtype),
        np.array(0.75, dtype),
    ]
    type_ = f"tensor<{'x'.join(map(str, shape))}x{element}>"
    module = module_of("mse_loss", (type_, type_), f'{{reduction = "{reduction}"}}')
    check(module, values, by_torch("mse_loss", values, {"reduction": reduction}), element, tmp_path)


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"reduction": "sum", "ignore_index": 2},
    {"label_smoothing": 0.1, "ignore_index": 0},
    {"label_smoothing": 1.0, "reduction": "sum"},
)


def entropy(
    element: str, rows: int, classes: int, options: dict[str, Any], cotangent: str = "first"
) -> ModuleOp:
    names = {"ignore_index": " : i64", "label_smoothing": " : f64", "reduction": ""}
    words = [
        f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}{names[name]}"
        for name, value in options.items()
    ]
    attrs = f"{{{', '.join(words)}}}" if words else ""
    return module_of(
        "cross_entropy", (f"tensor<{rows}x{classes}x{element}>", f"tensor<{rows}xi64>"), attrs, cotangent
    )


def logits(element: str, rows: int, classes: int) -> list[Array]:
    rng = np.random.default_rng((rows, classes))
    dtype = NUMPY_TYPES[element]
    y = rng.normal(0, 3, (rows, classes)).astype(dtype)
    return [y, rng.integers(0, classes, rows), np.array(0.5, dtype)]


@pytest.mark.parametrize("element", TORCH)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("rows", "classes"), [(33, 10), (3, 1000), (70, 129)])
def test_cross_entropy(
    element: str, options: dict[str, Any], rows: int, classes: int, tmp_path: Path
) -> None:
    values = logits(element, rows, classes)
    want = by_torch("cross_entropy", values, options)
    check(entropy(element, rows, classes, options), values, want, element, tmp_path)


def test_loss_and_gradient_are_one_walk_of_the_rows() -> None:
    rows = [op for op in fused(entropy("f32", 33, 10, {})).walk() if isinstance(op, kernel.RowwiseOp)]
    assert len(rows) == 3  # the rows that count, the rows, their mean
    assert sum(list(op.attrs["shape"]) == [33, 10] for op in rows) == 1


def test_a_cotangent_that_follows_from_the_loss(tmp_path: Path) -> None:
    values = logits("f32", 33, 10)
    want = by_torch("cross_entropy", values, {}, squared=True)
    check(entropy("f32", 33, 10, {}, "loss"), values, want, "f32", tmp_path)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_special_logits_and_targets(options: dict[str, Any], tmp_path: Path) -> None:
    """Infinities, NaN, numbers whose exponential overflows, rows that do not count; a target that is no class gives NaN."""
    ignored = options.get("ignore_index", -100)
    special = np.array(
        [
            [1e30, 0, -1e30], [88.9, 89.1, 400], [-np.inf, 1, 2], [np.inf, 1, 2], [np.nan, 1, 2],
            [-np.inf] * 3, [0, 0, 0], [1, 2, 3], [-800, -900, -1000],
        ],
        np.float32,
    )  # fmt: skip
    for row in special:
        for target in (0, 1, 2, ignored):
            values = [row[None], np.array([target]), np.array(1.0, np.float32)]
            made = fused(entropy("f32", 1, 3, options))
            with np.errstate(all="ignore"):
                got = run_function(made, values)
            want = by_torch("cross_entropy", values, options)
            for ours, theirs in zip(got, want, strict=True):
                np.testing.assert_allclose(
                    ours, theirs.astype(np.float32), rtol=1e-5, atol=1e-6, err_msg=f"{row} {target}"
                )
    for target in (-1, 3, 1 << 40):
        values = [special[-2:-1], np.array([target]), np.array(1.0, np.float32)]
        loss, gradient = run_function(fused(entropy("f32", 1, 3, options)), values)
        assert np.isnan(loss)
        assert np.isnan(gradient).all()


def test_no_rows_and_single_numbers_keep_their_launches() -> None:
    none = run_pipeline(entropy("f32", 0, 3, {}), "decompose,lower,fuse{target=sm_90}")
    assert {"kernel.cross_entropy", "kernel.cross_entropy_grad"} <= {op.name for op in none.walk()}
    number = run_pipeline(
        module_of("mse_loss", ("tensor<f32>", "tensor<f32>"), ""), "decompose,lower,fuse{target=sm_90}"
    )
    assert {"kernel.mse_loss", "kernel.mse_grad"} <= {op.name for op in number.walk()}

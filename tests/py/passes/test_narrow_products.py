"""Products with few rows, columns or terms, and of odd rows in 16 bits: as loops or padded, they are the same products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from programs import run_pipeline
from torch import nn
from torch.nn import functional
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import compile_train_step
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes.fuse import aligned_products
from aicf_mlir.text.parsing import parse_module

TARGETS = ("sm_90", "sm_90+cublaslt")
UNIT = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-23, "f64": 2.0**-52}
PASSES = 'fuse{{target="{0}"}},dce,elide-copies{{target="{0}"}},select-kernels{{target="{0}"}}'


def product(
    m: int, n: int, k: int, element: str, trans_a: bool = False, trans_b: bool = False, bias: bool = False
) -> ModuleOp:
    """A function of one product, with its bias added, and relu of it as a second result."""
    a = f"tensor<{k}x{m}x{element}>" if trans_a else f"tensor<{m}x{k}x{element}>"
    b = f"tensor<{n}x{k}x{element}>" if trans_b else f"tensor<{k}x{n}x{element}>"
    z, row = f"tensor<{m}x{n}x{element}>", f"tensor<{n}x{element}>"
    flags = f" {{trans_a = {str(trans_a).lower()}, trans_b = {str(trans_b).lower()}}}"
    lines = [f"%z = kernel.gemm a(%a) b(%b){flags} : ({a}, {b}) -> {z}"]
    if bias:
        lines.append(f"%s = kernel.bias_add x(%z) bias(%c) : ({z}, {row}) -> {z}")
    made = "%s" if bias else "%z"
    lines.append(f"%r = kernel.relu x({made}) : ({z}) -> {z}")
    body = "\n  ".join(lines)
    return parse_module(
        f"func.func @f(%a: {a}, %b: {b}, %c: {row}) -> ({z}, {z}) {{\n  {body}\n"
        f"  func.return {made}, %r : {z}, {z}\n}}"
    )


def operands(module: ModuleOp, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    (function,) = module.ops
    found: list[Array] = []
    for argument in function.body.block.args:  # pyright: ignore[reportAttributeAccessIssue]
        kind = NUMPY_TYPES[str(argument.type.element_type)]
        found.append(rng.standard_normal(argument.type.get_shape()).astype(kind))
    return found


def launches(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk() if op.name.startswith("kernel.") and "kernel_id" in op.properties]


def assert_is_the_product(before: ModuleOp, after: ModuleOp, element: str, flags: dict[str, bool]) -> None:
    """One rounding of the sums and the bias, in whatever order they are added, and relu of the rounded result."""
    values = operands(before, 0)
    a, b, bias = (value.astype(np.float64) for value in values)
    left, right = a.T if flags.get("trans_a") else a, b.T if flags.get("trans_b") else b
    exact = left @ right + (bias if flags.get("bias") else 0.0)
    sizes = np.abs(left) @ np.abs(right) + np.abs(bias)
    allowed = (
        0.5 * UNIT[element] * np.abs(exact) * 1.01
        + left.shape[1] * UNIT["f64" if element == "f64" else "f32"] * sizes
    )
    found, relu = run_function(after, values)
    assert found.dtype == values[0].dtype and found.shape == exact.shape
    assert (np.abs(found.astype(np.float64) - exact) <= allowed).all()
    assert np.array_equal(relu, np.maximum(found, 0))


SHAPES = {
    "one column": (4096, 1, 40),
    "three columns": (4096, 3, 37),
    "one column of long rows": (1030, 1, 2056),
    "three terms": (512, 300, 3),
    "one term": (1000, 200, 1),
    "one row": (1, 130, 4100),
    "three rows": (3, 130, 4100),
    "five columns": (130, 5, 4100),
    "ten classes": (256, 10, 512),
    "fifteen classes": (130, 15, 700),
}
FLAGS = {
    **dict.fromkeys(("ten classes", "fifteen classes"), ({"trans_b": True}, {"trans_b": True, "bias": True})),
    "one row": ({"trans_a": True}, {"trans_b": True}, {}),
    "three rows": ({"trans_a": True}, {}),
    "five columns": ({"trans_a": True}, {"trans_b": True}, {}),
}


def narrow_cases() -> Iterator[tuple[str, str, dict[str, bool]]]:
    for name in SHAPES:
        for flags in FLAGS.get(name, ({"trans_b": True}, {"trans_b": True, "bias": True}, {"bias": True})):
            for element in ("bf16", "f32"):
                yield name, element, flags


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name, element, flags", list(narrow_cases()))
def test_narrow_products_are_loops(name: str, element: str, flags: dict[str, bool], target: str) -> None:
    (m, n, k), bias = SHAPES[name], flags.get("bias", False)
    before = product(m, n, k, element, **flags)
    after = run_pipeline(before, PASSES.format(target))
    names = launches(after)
    assert not any("gemm" in launch for launch in names), names
    assert len(names) <= (1 if bias or m * n > 2000 else 5), names
    assert_is_the_product(before, after, element, flags)


@pytest.mark.parametrize("m, n", [(130, 13), (512, 16), (10, 300), (16, 32)])
def test_up_to_16_long_sums_of_f32_are_loops(m: int, n: int) -> None:
    """One launch, whose sums are the rows or the columns of the result, and one for relu of them."""
    before = product(m, n, 2056, "f32", trans_a=True)
    after = run_pipeline(before, PASSES.format("sm_90"))
    assert launches(after) == ["kernel.colwise", "kernel.relu"]
    assert_is_the_product(before, after, "f32", {"trans_a": True})


@pytest.mark.parametrize(
    "m, n, k, element",
    [(130, 17, 2056, "f32"), (130, 13, 2040, "f32"), (130, 13, 2056, "bf16"), (16, 31, 2056, "f32")],
)
def test_others_are_not(m: int, n: int, k: int, element: str) -> None:
    after = run_pipeline(product(m, n, k, element, trans_a=True), PASSES.format("sm_90"))
    assert "gemm" in " ".join(launches(after))


BATCHES = {
    "one column": (40, 130, 1, 33),
    "one row": (40, 1, 130, 33),
    "three terms": (2000, 4, 5, 3),
    "one term": (70, 30, 20, 1),
}


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("name", BATCHES)
def test_narrow_products_of_a_batch(name: str, trans_a: bool, trans_b: bool) -> None:
    batch, m, n, k = BATCHES[name]
    a, b = ((k, m) if trans_a else (m, k)), ((n, k) if trans_b else (k, n))
    x, y, z = (f"tensor<{batch}x{rows}x{columns}xbf16>" for rows, columns in (a, b, (m, n)))
    flags = f"{{trans_a = {str(trans_a).lower()}, trans_b = {str(trans_b).lower()}}}"
    before = parse_module(
        f"func.func @f(%a: {x}, %b: {y}, %c: tensor<{n}xbf16>) -> ({z}, {z}) {{\n"
        f"  %z = kernel.gemm a(%a) b(%b) {flags} : ({x}, {y}) -> {z}\n"
        f"  %s = kernel.bias_add x(%z) bias(%c) : ({z}, tensor<{n}xbf16>) -> {z}\n"
        f"  %r = kernel.relu x(%s) : ({z}) -> {z}\n  func.return %s, %r : {z}, {z}\n}}"
    )
    after = run_pipeline(before, PASSES.format("sm_90"))
    assert not any("gemm" in launch for launch in launches(after)), launches(after)
    left, right, bias = (value.astype(np.float64) for value in operands(before, 0))
    left, right = left.mT if trans_a else left, right.mT if trans_b else right
    exact = left @ right + bias
    found, relu = run_function(after, operands(before, 0))
    allowed = 0.51 * UNIT["bf16"] * np.abs(exact) + k * UNIT["f32"] * (
        np.abs(left) @ np.abs(right) + np.abs(bias)
    )
    assert (np.abs(found.astype(np.float64) - exact) <= allowed).all()
    assert np.array_equal(relu, np.maximum(found, 0))


@pytest.mark.parametrize("element", ["f16", "f64"])
def test_other_types(element: str) -> None:
    before = product(4096, 2, 33, element, trans_b=True, bias=True)
    after = run_pipeline(before, PASSES.format("sm_90"))
    assert launches(after) == ["kernel.rowwise"]
    assert_is_the_product(before, after, element, {"trans_b": True, "bias": True})


def test_which_products_stay() -> None:
    """Those of eight columns, or of none at all; and all on the CPU."""
    for m, n, k in ((4096, 8, 64), (4096, 1, 0)):
        assert "kernel.gemm" in " ".join(
            launches(run_pipeline(product(m, n, k, "bf16"), PASSES.format("sm_90")))
        )
    narrow = product(4096, 1, 64, "f32")
    assert "gemm" in " ".join(launches(run_pipeline(narrow, PASSES.format("cpu"))))


ODD = {
    "k of 63": (1024, 256, 63, {"trans_b": True, "bias": True}),
    "k of 319": (512, 128, 319, {"trans_b": True}),
    "k of 319, b by columns": (512, 128, 319, {}),
    "n of 63": (256, 63, 1024, {"trans_a": True}),
    "n of 319 with a bias": (256, 319, 64, {"trans_b": True, "bias": True}),
    "m of 63": (63, 256, 1024, {"trans_a": True}),
    "all odd": (129, 67, 131, {}),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ODD)
def test_odd_rows_are_padded(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned_products, "LARGE", 1 << 13)
    m, n, k, flags = ODD[name]
    before = product(m, n, k, "bf16", **flags)
    after = run_pipeline(before, PASSES.format(target))
    products = [op for op in after.walk() if "gemm" in op.name]
    assert len(products) == 1
    for value in (*products[0].operands, *products[0].results):
        assert value.type.get_shape()[-1] % 8 == 0  # pyright: ignore[reportAttributeAccessIssue]
    assert_is_the_product(before, after, "bf16", flags)


def test_a_batch_is_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in attention over 197 patches: three products, whose weights are padded once for two of them."""
    monkeypatch.setattr(aligned_products, "LARGE", 1 << 10)
    weights, values = "tensor<2x3x37x37xbf16>", "tensor<2x3x37x16xbf16>"
    before = parse_module(
        f"""func.func @f(%w: {weights}, %v: {values}, %g: {values}) -> ({values}, {values}, {weights}) {{
          %y = kernel.gemm a(%w) b(%v) : ({weights}, {values}) -> {values}
          %dv = kernel.gemm a(%w) b(%g) {{trans_a = true}} : ({weights}, {values}) -> {values}
          %dw = kernel.gemm a(%g) b(%v) {{trans_b = true}} : ({values}, {values}) -> {weights}
          func.return %y, %dv, %dw : {values}, {values}, {weights}
        }}"""
    )
    after = run_pipeline(before, PASSES.format("sm_90+cublaslt"))
    products = [op for op in after.walk() if op.name == "kernel.gemm"]
    read = [value for op in products for value in op.operands if shape_of(value)[-1] == 40]
    assert len(products) == 3 and len(read) == 2 and read[0] is read[1]
    values_ = operands(before, 5)
    for found, expected in zip(run_function(after, values_), run_function(before, values_), strict=True):
        assert np.allclose(found.astype(np.float64), expected.astype(np.float64), rtol=2.0**-7, atol=1e-5)


def test_other_products_are_not_padded() -> None:
    """Aligned ones, those of f32, and small ones."""
    for case in (product(1024, 256, 64, "bf16"), product(1024, 256, 63, "f32"), product(64, 32, 63, "bf16")):
        assert not any(op.name == "kernel.join" for op in run_pipeline(case, PASSES.format("sm_90")).walk())


TALL = {"a by columns": {"trans_a": True}, "both along k": {"trans_b": True}, "as they are": {}}


@pytest.mark.parametrize("name", TALL)
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_tall_products_are_divided(name: str, element: str) -> None:
    """The gradient of a layer of 40 x 30 over many rows: a batch of parts, what a prime number leaves, and their sum."""
    flags = TALL[name]
    for k, rest in ((6000, 0), (6007, 1)):
        before = product(40, 30, k, element, **flags)
        after = run_pipeline(before, PASSES.format("sm_90"))
        parts, *others = (shape_of(op.results[0]) for op in after.walk() if op.name.startswith("kernel.gemm"))
        assert parts[0] > 8 and others == [(40, 30)] * rest
        assert_is_the_product(before, after, element, flags)


@pytest.mark.parametrize("case", [(40, 30, 2047, "f32"), (1024, 1024, 8192, "f32"), (40, 32, 8192, "bf16")])
def test_other_products_are_not_divided(case: tuple[int, int, int, str]) -> None:
    """Short ones, many tiles, and those that tensor cores divide."""
    module = run_pipeline(product(*case, trans_a=True), PASSES.format("sm_90"))
    assert not any("reduce_sum" in op.name for op in module.walk())


class Field(nn.Module):
    """A head with one output and one with three, a skip that makes rows of 319 elements, as in radiance fields."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(63, 256), nn.Linear(319, 128)
        self.density, self.color = nn.Linear(128, 1), nn.Linear(128, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.cat((self.first(x).relu(), x), 1)
        hidden = self.second(hidden).relu()
        return self.density(hidden).relu(), self.color(hidden).sigmoid()


def field_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.autocast(batch["x"].device.type, torch.bfloat16):
        density, color = model(batch["x"])
        return functional.mse_loss((density * color).float(), batch["t"])


def test_a_field_trains_as_in_torch(device: str) -> None:
    """Five steps: the losses, and how far the parameters have moved."""
    torch.manual_seed(0)
    ours, theirs = Field().to(device), Field().to(device)
    theirs.load_state_dict(ours.state_dict())
    start = [parameter.detach().clone() for parameter in ours.parameters()]
    batch = {"x": torch.randn(2048, 63, device=device), "t": torch.rand(2048, 3, device=device)}
    adam, reference = (torch.optim.Adam(model.parameters(), lr=1e-3) for model in (ours, theirs))
    step = compile_train_step(ours, adam, device=device, example=batch, loss_fn=field_loss)
    for _ in range(5):
        loss = float(step.train_step(batch))
        reference.zero_grad()
        expected = field_loss(theirs, batch)
        expected.backward()
        reference.step()
        assert loss == pytest.approx(float(expected.detach()), rel=2e-2)
    for first, mine, other in zip(start, ours.parameters(), theirs.parameters(), strict=True):
        moved = float((other.detach() - first).norm())
        assert float((mine.detach() - other.detach()).norm()) <= 0.25 * moved

"""Convolutions with images channels last, and as products: values as before the pass, for what stands between convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from programs import run_pipeline, step_function
from torch import nn
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, bf16, f32, i64
from xdsl.ir import Attribute, Block, Region

from aicf_mlir import trace
from aicf_mlir.dialects import nn as nn_ops
from aicf_mlir.dialects.nn.convolutions import Convolved, ConvolvingOp
from aicf_mlir.frontend.precision import Precision, PrecisionName
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.arithmetic import EXACT
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.signature import argument_labels
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes import convolutions as rules
from aicf_mlir.stages import Snapshots, make_context, run_stages

TARGET = "sm_90+cublaslt+cudnn"
SHAPE = (2, 3, 8, 8)


class Net(nn.Module):
    """A convolution, something, and another convolution."""

    def __init__(self, between: Callable[..., torch.Tensor], width: int = 8, **layers: nn.Module):
        super().__init__()
        self.first, self.between, self.layers = nn.Conv2d(3, 8, 3, padding=1), between, nn.ModuleDict(layers)
        self.last = nn.Conv2d(width, 4, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The loss of images [N, 3, H, W]."""
        return self.last(self.between(self.first(x), **self.layers)).square().mean()


Between = tuple[Callable[..., torch.Tensor], Mapping[str, nn.Module]]

BETWEEN: dict[str, Between] = {
    "relu": (lambda x: F.relu(x), {}),
    "batch norm and residual": (
        lambda x, norm: F.silu(norm(x) + x),
        {"norm": nn.BatchNorm2d(8)},
    ),
    "group norm": (lambda x, norm: norm(x), {"norm": nn.GroupNorm(2, 8)}),
    "group norm by hand": (
        lambda x: (
            ((g := x.reshape(2, 2, -1)) - g.mean(-1, keepdim=True))
            .mul(g.var(-1, keepdim=True))
            .reshape(x.shape)
        ),
        {},
    ),
    "rows of groups, normed and used": (
        lambda x: (
            F.layer_norm(g := x.reshape(2, 2, -1), (256,)) + g.relu() * torch.cat([g, g], 1)[:, 1:3]
        ).reshape(x.shape),
        {},
    ),
    "largest places": (lambda x: x + x.argmax(1, keepdim=True) + x.argmax(2, keepdim=True), {}),
    "layer norm of channels": (
        lambda x, norm: norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
        {"norm": nn.LayerNorm(8)},
    ),
    "max pool": (lambda x: F.max_pool2d(x, 3, 2, 1), {}),
    "its places too": (
        lambda x: F.max_pool2d(x, 2, return_indices=True)[0] + F.max_pool2d(x, 2, return_indices=True)[1],
        {},
    ),
    "average pool": (lambda x: F.avg_pool2d(x, 2), {}),
    "depthwise": (lambda x, deep: deep(x), {"deep": nn.Conv2d(8, 8, 3, padding=1, groups=8)}),
    "groups": (lambda x, deep: deep(x), {"deep": nn.Conv2d(8, 8, 3, padding=1, groups=2)}),
    "outputs of groups": (
        lambda x, deep, thin: thin(deep(x)),
        {"deep": nn.Conv2d(8, 16, 3, padding=1, groups=8), "thin": nn.Conv2d(16, 8, 1)},
    ),
    "transposed": (lambda x, up: up(x), {"up": nn.ConvTranspose2d(8, 8, 2, stride=2)}),
    "squeeze and excite": (
        lambda x, gate: x * torch.sigmoid(gate(F.adaptive_avg_pool2d(x, 1))),
        {"gate": nn.Conv2d(8, 8, 1)},
    ),
    "upsampled": (lambda x: F.interpolate(x, scale_factor=2.0), {}),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), {}),
    "concat": (lambda x: torch.cat([x[:, :4], F.relu(x[:, 4:])], 1), {}),
    "split of rows": (lambda x: torch.cat(torch.split(x, 4, 2), 0), {}),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1), value=0.5), {}),
    "shuffled": (lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), {}),
    "heads": (lambda x: (x.flatten(2).softmax(-1).transpose(1, 2)).transpose(1, 2).reshape(x.shape), {}),
    "tokens": (
        lambda x, mix: mix(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, (8, 8)),
        {"mix": nn.Linear(8, 8)},
    ),
    "scaled by a mask": (lambda x: torch.where(x > 0, x, x.mean((0, 2, 3), keepdim=True)), {}),
    "largest of channels": (lambda x: x * x.amax(1, keepdim=True), {}),
    "std": (lambda x: x / (x.std((2, 3), keepdim=True) + 1), {}),
}


def step_of(
    between: Between, precision: PrecisionName | None = "tf32", element: torch.dtype = torch.float32
) -> ModuleOp:
    """The train step before it is lowered."""
    torch.manual_seed(0)
    function, layers = between
    model, x = Net(function, **layers).to(element), torch.randn(SHAPE).to(element)
    optimizer, stages = torch.optim.SGD(model.parameters(), 0.1), Snapshots()
    rounded = Precision(precision)
    traced = trace(model, lambda m, b: m(b["x"]), {"x": x}, optimizer=optimizer, precision=rounded)
    run_stages(traced.module, make_context(), until="step", after_each=stages)
    return stages["step"]


def values_of(module: ModuleOp) -> list[Array]:
    """Operands of a step: numbers, and for integers places that every table has."""
    rng, function = np.random.default_rng(0), step_function(module)
    values: list[Array] = []
    for label, argument in zip(argument_labels(function), function.args, strict=True):
        whole = element_type(argument) == i64
        made = rng.integers(0, 2, shape_of(argument)) if whole else rng.uniform(0.1, 1.0, shape_of(argument))
        values.append(made * (label.role != "status"))
    return values


def convolutions(module: ModuleOp) -> list[ConvolvingOp]:
    """Those that are left."""
    return [op for op in module.walk() if isinstance(op, ConvolvingOp)]


@pytest.mark.parametrize(
    ("target", "precision"), [("cpu", "tf32"), ("sm_90", "tf32"), (TARGET, "tf32"), (TARGET, "f32")]
)
@pytest.mark.parametrize("between", BETWEEN)
def test_values_stay(between: str, target: str, precision: PrecisionName) -> None:
    """In exact arithmetic, where the order of sums does not matter. On a GPU images of exact f32 stay as they are."""
    step = step_of(BETWEEN[between], precision)
    inputs = values_of(step)
    after = run_pipeline(step, f'convolutions{{target="{target}"}},dce')
    left = convolutions(after)
    of_groups = between in ("groups", "outputs of groups")  # a GPU has a kernel for them without a library
    assert bool(left) == (target != "sm_90" or of_groups)
    for op in left:
        is_moved = precision == "tf32" or (of_groups and op.convolved.groups > 1)
        assert is_true(op.channels_last) == is_moved, op
        assert target != "sm_90" or op.convolved.groups > 1, op
    for before, now in zip(
        run_function(step, inputs, EXACT), run_function(after, inputs, EXACT), strict=True
    ):
        np.testing.assert_allclose(now, before, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "between",
    [
        "relu",
        "batch norm and residual",
        "max pool",
        "average pool",
        "transposed",
        "squeeze and excite",
        "pad",
    ],
)
def test_images_stay_channels_last(between: str) -> None:
    """But for the batch, none that several elements of a channel make is turned."""
    step = run_pipeline(step_of(BETWEEN[between]), f'convolutions{{target="{TARGET}"}},dce')
    turned = [
        op for op in step.walk() if isinstance(op, nn_ops.TransposeOp) and shape_of(op.x)[0] == SHAPE[0]
    ]
    assert [shape_of(op.x) for op in turned] == [SHAPE], [str(op) for op in turned]


def test_other_types_are_products() -> None:
    """cuDNN has no convolution of f64 that we use."""
    model = nn.Conv2d(3, 4, 3).double()
    optimizer, stages = torch.optim.SGD(model.parameters(), 0.1), Snapshots()
    x = torch.randn(SHAPE, dtype=torch.float64)
    traced = trace(model, lambda m, b: m(b["x"]).sum(), {"x": x}, optimizer=optimizer)
    run_stages(traced.module, make_context(), target=TARGET, until="kernel", after_each=stages)
    assert "kernel.convolution" not in stages.text("kernel")


FEW = (
    ((2, 3, 9, 9), 12, (3, 3), (1, 1), (1, 1)),
    ((2, 3, 11, 8), 8, (7, 7), (2, 2), (3, 3)),
    ((1, 4, 20, 20), 8, (8, 8), (4, 4), (0, 0)),
    ((2, 3, 12, 12), 13, (4, 4), (4, 4), (0, 0)),
    ((1, 1, 13, 10), 11, (5, 2), (3, 2), (2, 0)),
    ((1, 3, 7, 9), 10, (3, 3), (2, 1), (1, 1)),
    ((2, 6, 9), 12, (3,), (2,), (1,)),
    ((1, 2, 5, 6, 7), 9, (3, 2, 3), (2, 2, 2), (1, 0, 1)),
    ((1, 3, 5, 5), 9, (1, 1), (2, 2), (0, 0)),
    ((1, 16, 6, 5), 1, (3, 3), (2, 1), (1, 1)),
)
"""x [N, C, spatial], outputs, kernel, stride and padding."""


@pytest.mark.parametrize("dilated", [False, True])
@pytest.mark.parametrize("case", FEW, ids=str)
@pytest.mark.parametrize(
    "kind", [nn_ops.ConvolutionOp, nn_ops.ConvolutionInputGradOp, nn_ops.ConvolutionWeightGradOp]
)
def test_few_channels(
    kind: type[ConvolvingOp], case: Any, dilated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells of a stride, and channels that are added: what the library gets is even, and the values stay."""
    monkeypatch.setattr(rules, "MOST_CHANNELS", 0)
    channels = case[0][1]
    before, now, (convolution,) = convolved(kind, case, dilated)
    if channels % 8 == 0:  # of a layer alone such images are left to the library
        assert not is_true(convolution.channels_last)
        return
    for value in (*convolution.operands, convolution.result):
        parts = convolution.convolved.parts(value)
        assert parts.channels % 8 == 0, value
    assert dilated or set(convolution.convolved.stride) == {1}
    np.testing.assert_allclose(now, before, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dilated", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("outputs", [1, 7])
@pytest.mark.parametrize(
    "kind", [nn_ops.ConvolutionOp, nn_ops.ConvolutionInputGradOp, nn_ops.ConvolutionWeightGradOp]
)
def test_few_channels_of_both(kind: type[ConvolvingOp], outputs: int, channels: int, dilated: bool) -> None:
    """The library would move and multiply zeros."""
    case = ((2, channels, 11, 8), outputs, (3, 3), (2, 1), (1, 1))
    before, now, left = convolved(kind, case, dilated)
    assert not left
    np.testing.assert_allclose(now, before, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("outputs", "channels", "kernel", "element", "left"),
    [
        *((7, 7, (3, 3), bf16, 0), (7, 7, (4, 3), bf16, 1), (0, 3, (1, 1), bf16, 0)),
        *(
            (9, 1, (3, 3), bf16, 0),
            (1, 8, (3, 3), bf16, 0),
            (64, 3, (3, 3), bf16, 1),
            (8, 8, (1, 1), bf16, 1),
        ),
        *((8, 1, (1, 1), bf16, 0), (1, 9, (1, 1), bf16, 0), (1, 8, (1, 1), bf16, 1)),
        *((3, 3, (5, 5), f32, 0), (7, 7, (3, 3), f32, 0), (1, 8, (1, 1), f32, 0), (1, 32, (3, 3), f32, 1)),
    ],
)
def test_when_channels_are_few(
    outputs: int, channels: int, kernel: tuple[int, int], element: Attribute, left: int
) -> None:
    """On one side, with a small kernel; not a product of whole vectors of 16 bits."""
    case = ((2, channels, 5, 5), outputs, kernel, (1, 1), (0, 0))
    _, _, found = convolved(nn_ops.ConvolutionOp, case, False, element)
    assert len(found) == left


@pytest.mark.parametrize("most", [2 * 25, 2 * 25 - 1])
@pytest.mark.parametrize(
    ("kind", "terms"), [(nn_ops.ConvolutionOp, 512), (nn_ops.ConvolutionWeightGradOp, 256)]
)
def test_gradients_of_many_places(
    kind: type[ConvolvingOp], terms: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library takes less long for them, and not for the result of a layer alone."""
    monkeypatch.setattr(rules, "MOST_PLACES", most)
    _, _, found = convolved(kind, ((2, 3, 5, 5), 16, (3, 3), (1, 1), (1, 1)), False)
    assert bool(found) == (terms < 16 * 3 * 9 and most < 2 * 25)


@pytest.mark.parametrize(("most", "left"), [(2 * 64, 0), (2 * 64 - 1, 2), (2 * 16 - 1, 5)])
def test_few_channels_next_to_other_layers(most: int, left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many places they are channels last as the others are: no copies lie between them."""
    monkeypatch.setattr(rules, "MOST_PLACES", most)
    step = run_pipeline(
        step_of(BETWEEN["relu"], None, torch.bfloat16), f'convolutions{{target="{TARGET}"}},dce'
    )
    found = convolutions(step)
    assert len(found) == left and all(is_true(op.channels_last) for op in found)


@pytest.mark.parametrize(
    ("case", "in_cells"),
    [
        (((3, 8, 10, 10), 16, (4, 4), (2, 2), (0, 0)), True),
        (((3, 16, 6, 9), 8, (2, 3), (2, 3), (0, 0)), True),
        (((2, 8, 12), 8, (6,), (3,), (0,)), True),
        (((3, 8, 10, 10), 16, (3, 4), (2, 2), (0, 0)), False),
        (((3, 8, 10, 10), 16, (4, 4), (2, 2), (1, 1)), False),
        (((3, 8, 11, 10), 16, (4, 4), (2, 2), (0, 0)), False),
    ],
    ids=str,
)
def test_gradients_in_cells(case: Any, in_cells: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that cut small images into whole cells: the gradient is one without a stride."""
    monkeypatch.setattr(rules, "is_one_layer", lambda _: False)
    before, now, (convolution,) = convolved(nn_ops.ConvolutionInputGradOp, case, False)
    assert (set(convolution.convolved.stride) == {1}) == in_cells
    np.testing.assert_allclose(now, before, rtol=1e-9, atol=1e-12)


GROUPED = {
    "a channel, two outputs": (((2, 8, 9, 9), 16, (7, 7), (2, 2), (3, 3)), 8, True),
    "two channels, an output": (((2, 16, 9, 9), 8, (3, 3), (1, 1), (1, 1)), 8, True),
    "four of each": (((2, 16, 9, 9), 16, (3, 3), (2, 2), (1, 1)), 4, True),
    "one of each": (((2, 16, 9, 9), 16, (3, 3), (1, 1), (1, 1)), 16, False),
    "many of each": (((2, 32, 9, 9), 32, (3, 3), (1, 1), (1, 1)), 2, False),
}
"""As `FEW`, the groups, and if a kernel for few channels of a group takes them though they are alone, or of f32."""


@pytest.mark.parametrize("dilated", [False, True])
@pytest.mark.parametrize("element", [bf16, f32], ids=str)
@pytest.mark.parametrize("case", GROUPED)
@pytest.mark.parametrize(
    "kind", [nn_ops.ConvolutionOp, nn_ops.ConvolutionInputGradOp, nn_ops.ConvolutionWeightGradOp]
)
def test_groups_of_few_channels(
    kind: type[ConvolvingOp], case: str, element: Attribute, dilated: bool
) -> None:
    """They are moved to where their kernel takes them. Others of one layer stay: f32 weights as products or sums of windows."""
    shapes, groups, is_moved = GROUPED[case]
    before, now, left = convolved(kind, shapes, dilated, element, groups)
    stays = not is_moved and kind is nn_ops.ConvolutionWeightGradOp and element == f32
    assert [is_true(op.channels_last) for op in left] == ([] if stays else [is_moved])
    np.testing.assert_allclose(now, before, rtol=1e-9, atol=1e-12)


MANY_PLACES = ((2, 3, 32, 34), 9, (3, 3), (1, 1), (1, 1)), ((1, 9, 2048), 8, (1,), (1,), (0,))
"""Of images that are taken in parts."""


@pytest.mark.parametrize("dilated", [False, True])
@pytest.mark.parametrize("case", (*FEW, *MANY_PLACES), ids=str)
@pytest.mark.parametrize("kind", [nn_ops.ConvolutionInputGradOp, nn_ops.ConvolutionWeightGradOp])
def test_gradients_by_image(
    kind: type[ConvolvingOp], case: Any, dilated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of f32 for each image: of the weights, if there are as many places as filters, and of images of few channels."""
    monkeypatch.setattr(rules, "MOST_CHANNELS", 0)
    (_, channels, *_), filters, *_ = case
    before, now, left = convolved(kind, case, dilated, f32)
    of_images = kind is nn_ops.ConvolutionInputGradOp
    for op in left:
        assert channels >= 8 if of_images else prod(op.spatial(op.operands[1])) < filters
    assert left or not of_images or channels < 8
    np.testing.assert_allclose(now, before, rtol=1e-9, atol=1e-12)


def convolved(
    kind: type[ConvolvingOp], case: Any, dilated: bool, element: Attribute = bf16, groups: int = 1
) -> tuple[Array, Array, list[ConvolvingOp]]:
    """What an op computes before the pass and after it, and those that are left."""
    (n, channels, *spatial), outputs, kernel, stride, low = case
    dilation = (2 if dilated else 1,) * len(kernel)
    numbers = zip(spatial, kernel, stride, low, dilation, strict=True)
    out = [(size + 2 * pad - step * (k - 1) - 1) // every + 1 for size, k, every, pad, step in numbers]
    if min(out) < 1:
        pytest.skip("no window")
    shapes = {
        "x": (n, channels, *spatial),
        "w": (outputs, channels // groups, *kernel),
        "y": (n, outputs, *out),
    }
    made = {
        nn_ops.ConvolutionOp: "y",
        nn_ops.ConvolutionInputGradOp: "x",
        nn_ops.ConvolutionWeightGradOp: "w",
    }[kind]
    given = [shape for name, shape in shapes.items() if name != made]
    given = given[::-1] if made == "x" else given
    block = Block(arg_types=[TensorType(element, shape) for shape in given])
    a, b = block.args
    op = kind(a, b, Convolved(stride, dilation, low, groups), shapes[made][2:])
    block.add_ops([op, func.ReturnOp(op.result)])
    module = ModuleOp([func.FuncOp("f", (block.arg_types, op.result_types), Region(block))])
    inputs = [np.random.default_rng(0).standard_normal(shape) for shape in given]
    after = run_pipeline(module, f'convolutions{{target="{TARGET}"}},dce')
    (before,), (now,) = (run_function(each, inputs, EXACT) for each in (module, after))
    return before, now, convolutions(after)

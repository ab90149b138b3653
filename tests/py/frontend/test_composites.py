"""Composites under torch.autocast: their parts are cast as torch casts them, eager and in the trace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import Batch, to_device
from torch import nn

from aicf_mlir import compile_train_step, trace
from aicf_mlir.frontend.composites import seen_by_autocast
from aicf_mlir.frontend.unsupported import decompositions
from aicf_mlir.ir.signature import result_labels, return_op, steps
from aicf_mlir.ir.tensor_op import element_type


class Parts(nn.Module):
    """Layers for the functions below."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)
        self.lstm, self.gru, self.rnn = nn.LSTM(8, 4), nn.GRU(8, 8), nn.RNN(8, 8)
        self.cell = nn.LSTMCell(8, 8)


Function = Callable[[Any, Batch], torch.Tensor]

FUNCTIONS: Mapping[str, Function] = {
    "einsum": lambda m, b: torch.einsum("bi,oi->bo", b["x"], m.linear.weight),
    "tensordot": lambda m, b: torch.tensordot(b["x"], m.linear.weight, 1),
    "inner": lambda m, b: torch.inner(b["x"], m.linear.weight),
    "multi_dot": lambda m, b: torch.linalg.multi_dot([b["x"], m.linear.weight, m.linear.weight]),
    "matrix_power": lambda m, b: torch.linalg.matrix_power(m.linear.weight, 3),
    "lstm": lambda m, b: m.lstm(b["x"])[0],
    "gru": lambda m, b: m.gru(b["x"])[0],
    "rnn": lambda m, b: m.rnn(b["x"])[0],
    "cell": lambda m, b: m.cell(b["x"])[1],
    "nll_loss": lambda m, b: F.nll_loss(m.linear(b["x"]), b["t"]),
    "cross_entropy": lambda m, b: F.cross_entropy(m.linear(b["x"]), b["t"]),
    "smoothed": lambda m, b: F.cross_entropy(m.linear(b["x"]), b["t"], label_smoothing=0.1),
    "square": lambda m, b: m.linear(b["x"]).square(),
    "layer_norm": lambda m, b: F.layer_norm(m.linear(b["x"]), (8,)),
    "softmax": lambda m, b: torch.softmax(m.linear(b["x"]), -1),
    "norm": lambda m, b: torch.linalg.norm(m.linear(b["x"])),
    "resized": lambda m, b: F.interpolate(m.linear(b["x"])[None], scale_factor=2.0),
    "resized exactly": lambda m, b: F.interpolate(m.linear(b["x"])[None], size=11, mode="nearest-exact"),
    "resized smoothly": lambda m, b: F.interpolate(
        m.linear(b["x"])[None, None] if b["x"].is_cuda else m.linear(b["x"]).float()[None, None],
        size=(2, 5),
        mode="bilinear",
        antialias=True,
    ),
    "padded": lambda m, b: F.conv1d(m.linear(b["x"]), m.linear.weight[:3, :3, None], padding="same"),
    "padded inputs": lambda m, b: (
        F.conv1d(b["x"], m.linear.weight[:3, :3, None], padding="same") + m.linear(b["x"])
    ),
    "quantized": lambda m, b: torch.fake_quantize_per_tensor_affine(
        m.linear(b["x"]).float(), b["x"].new_tensor(0.1), b["t"].new_tensor(0, dtype=torch.int32), 0, 255
    ),
    "f64": lambda m, b: torch.einsum("bi,oi->bo", b["x"].double(), m.linear.weight.double()),
}

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64}

BY_A_LIBRARY = {"cpu": ("lstm",), "cuda": ("lstm", "gru", "rnn")}
"""In the type of autocast, if the device's library has it: on CPUs it depends on the processor, and cuDNN gets f16 always."""

PROMOTED = ("tensordot", "inner")
"""Which CUDA computes in the widest type of their operands."""


def batch_on(device: str) -> Batch:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 8, generator=generator)
    return to_device({"x": x, "t": torch.randint(0, 8, (3,), generator=generator)}, device)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_products_are_of_torchs_types(name: str, precision: str, device: str) -> None:
    function, model, batch = FUNCTIONS[name], Parts().to(device), batch_on(device)
    expected = TYPES[precision]
    if name not in BY_A_LIBRARY[device]:
        with torch.autocast(device, TYPES[precision]):
            expected = function(model, batch).dtype

    def loss(model: Any, batch: Batch) -> Any:
        with torch.autocast(device, TYPES[precision]):
            result = function(model, batch)
        return result.float().sum() + model.linear.weight.sum(), {"result": result}

    traced = trace(model, loss, batch)
    (step,) = steps(traced.module)
    labels = [label.name for label in result_labels(step)]
    found = str(element_type(return_op(step).operands[labels.index("result")]))
    names = {dtype: name for name, dtype in TYPES.items()}
    assert found == names[expected]
    if name == "resized smoothly":
        return  # by products of its own, in f32
    products = [op for op in step.walk() if op.name in ("nn.linear", "nn.matmul")]
    computed = {str(element_type(op.operands[0])) for op in products}
    widest = name == "f64" or (device == "cuda" and name in PROMOTED)
    assert computed == ({"f64" if name == "f64" else "f32"} if widest else {precision})


def test_nothing_is_left_behind_and_other_threads_compute_the_same() -> None:
    """The kernels for autocast are there while a block is taken apart, and for whoever computes beside it."""
    model, batch = Parts(), batch_on("cpu")

    def under_autocast() -> list[torch.Tensor]:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return [FUNCTIONS[name](model, batch) for name in ("einsum", "gru", "nll_loss", "multi_dot")]

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return FUNCTIONS["einsum"](model, batch).float().sum()

    listed: Any = torch._C._dispatch_get_registrations_for_dispatch_key  # pyright: ignore[reportPrivateUsage]
    before, expected = set(listed("AutocastCPU")), under_autocast()

    class Block(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return x @ x.T

    program = torch.export.export(Block(), (batch["x"],), strict=False)
    found: list[list[torch.Tensor]] = []
    with seen_by_autocast(program):
        assert "aten::einsum" in set(listed("AutocastCPU")) - before
        thread = threading.Thread(target=lambda: found.append(under_autocast()))
        thread.start()
        thread.join()
    assert all(torch.equal(ours, other) for ours, other in zip(found[0], expected, strict=True))
    trace(model, loss, batch)
    assert set(listed("AutocastCPU")) == before


VIEWS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "swapaxes": lambda y: y.swapaxes(0, 1),
    "movedim": lambda y: y.movedim((0, 1), (1, 0)),
    "adjoint": lambda y: y.adjoint(),
    "H": lambda y: y[0].H,
    "hsplit": lambda y: y.hsplit(2)[1],
    "atleast_3d": lambda y: torch.atleast_3d(y[0]),
    "ravel": lambda y: y.ravel(),
    "reshape_as": lambda y: y.reshape_as(y),
    "cartesian_prod": lambda y: torch.cartesian_prod(y[0, 0], y[0, 1]),
    "positive": lambda y: +y,
    "real": lambda y: y.real,
    "linalg.diagonal": torch.linalg.diagonal,
    "view and a rule": lambda y: F.hardswish(y.swapaxes(0, 1)).mT.logit(0.1),
    "rule and a view": lambda y: torch.logit(y, 0.1).swapaxes(0, 1),
}
"""Composites that torch has no rule for: it takes them apart, whatever it is asked for."""


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_taken_apart(name: str) -> None:
    function, x = VIEWS[name], torch.linspace(-1, 1, 36).reshape(2, 6, 3)
    layer = nn.Linear(3, 6)
    expected = function(layer(x)).square().mean()
    step = compile_train_step(
        layer,
        torch.optim.SGD(layer.parameters()),
        loss_fn=lambda m, b: function(m(b["x"])).square().mean(),
        example={"x": x},
    )
    torch.testing.assert_close(step.train_step({"x": x}), expected.detach())


def test_one_that_is_registered_late_is_taken_apart() -> None:
    """After the rules of torch were read, for an op that another model has."""
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    assert decompositions()
    library: Any = torch.library.Library("aicf_late", "DEF")
    try:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x.cosh() * 2, "CompositeImplicitAutograd")
        late = torch.ops.aicf_late.twice
        layer = nn.Linear(4, 2)
        expected = late(layer(x)).mean()
        step = compile_train_step(
            layer,
            torch.optim.SGD(layer.parameters()),
            loss_fn=lambda m, b: late(m(b["x"])).mean(),
            example={"x": x},
        )
        torch.testing.assert_close(step.train_step({"x": x}), expected.detach())
    finally:
        library._destroy()

"""Convolutions of every rank, stride, padding, dilation and grouping, trained beside torch."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import children
import pytest
import torch
import torch.nn.functional as F
from beside_torch import compiled
from torch import nn
from windowed import Draw, Fed, assert_layer_trains, loss
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import compile_train_step, trace
from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.schedule import generate
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.dialects.plan.kernels import generated_kernels
from aicf_mlir.ir.body import is_table
from aicf_mlir.passes import convolutions
from aicf_mlir.passes.convolutions import ConvolutionsPass
from aicf_mlir.stages import Snapshots, run_stages
from aicf_mlir.text.parsing import make_context, parse_module

PLAIN: tuple[Any, ...] = (None, nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED: tuple[Any, ...] = (None, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.Conv1d(3, 4, 3), (2, 3, 9)),
    "one image without a batch": (lambda: nn.Conv2d(3, 4, 3), (3, 6, 7)),
    "padding": (lambda: nn.Conv2d(3, 4, 3, padding=(1, 2)), (2, 3, 5, 6)),
    "stride and dilation": (lambda: nn.Conv2d(3, 4, (3, 2), stride=(2, 3), dilation=(1, 2)), (2, 3, 9, 11)),
    "same, by more behind": (lambda: nn.Conv2d(2, 3, (4, 3), padding="same"), (2, 2, 6, 5)),
    "reflected": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (2, 2, 6, 5)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, groups=2, bias=False), (2, 4, 6, 5)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4), (2, 4, 7, 6)),
    "depthwise, two for each": (lambda: nn.Conv2d(3, 6, 3, groups=3), (2, 3, 7, 6)),
    "depthwise, a stride that is no divisor": (lambda: nn.Conv1d(3, 3, 7, stride=3, groups=3), (2, 3, 20)),
    "pointwise": (lambda: nn.Conv2d(4, 3, 1), (2, 4, 5, 6)),
    "pointwise with stride": (lambda: nn.Conv2d(4, 3, 1, stride=2), (2, 4, 5, 6)),
    "patches": (lambda: nn.Conv2d(3, 5, (2, 3), stride=(2, 3)), (2, 3, 6, 9)),
    "patches that leave a rest": (lambda: nn.Conv2d(3, 5, 2, stride=2), (2, 3, 7, 5)),
    "3d": (lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1), (1, 2, 4, 5, 3)),
    "many positions": (lambda: nn.Conv2d(1, 2, 9, padding=4, stride=2), (1, 1, 11, 12)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), (2, 3, 4, 5)),
    "transposed groups": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=2), (2, 4, 4, 5)),
    "transposed depthwise": (
        lambda: nn.ConvTranspose1d(4, 4, 3, stride=3, groups=4, output_padding=2),
        (2, 4, 5),
    ),
    "transposed patches": (lambda: nn.ConvTranspose2d(4, 3, 2, stride=2), (2, 4, 3, 5)),
    "transposed 3d": (lambda: nn.ConvTranspose3d(2, 3, 2, stride=2, padding=1), (1, 2, 3, 4, 3)),
    "unfold": (lambda: nn.Unfold((2, 3), dilation=(1, 2), padding=1, stride=2), (2, 3, 6, 7)),
    "fold": (lambda: nn.Fold((5, 6), (2, 3), padding=(1, 0), stride=(2, 1)), (2, 12, 12)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    assert_layer_trains(*LAYERS[name])


@pytest.mark.parametrize("name", ["padding", "depthwise", "transposed", "groups"])
def test_layer_in_f32(name: str) -> None:
    assert_layer_trains(*LAYERS[name], torch.float32)


def test_any_arguments(program_seed: int) -> None:
    draw = Draw(program_seed)
    kernel, stride, dilation = draw.each(1, 2, 3, 3, 5), draw.each(1, 1, 2, 3), draw.each(1, 1, 2)
    groups = draw.one(1, 1, 2, 3)
    channels, outputs = groups * draw.one(1, 1, 2, 3), groups * draw.one(1, 1, 2)
    padding: Any = tuple(draw.random.randrange(k) for k in kernel)
    options: dict[str, Any] = {"groups": groups, "dilation": dilation, "bias": draw.one(True, False)}
    shape = (draw.one(1, 2, 3), channels, *draw.spatial(kernel, dilation))
    kind = PLAIN
    if draw.one(True, False, False):
        kind = TRANSPOSED
        most = (max(s, d) for s, d in zip(stride, dilation, strict=True))
        options["output_padding"] = tuple(draw.random.randrange(n) for n in most)
        padding = tuple(min(p, (k - 1) * d // 2) for p, k, d in zip(padding, kernel, dilation, strict=True))
    elif set(stride) == {1}:
        padding = draw.one(padding, "same", "valid")
    assert_layer_trains(
        lambda: kind[draw.rank](channels, outputs, kernel, stride=stride, padding=padding, **options), shape
    )


class Network(nn.Module):
    """Convolutions, norms, pools, a residual and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.GELU(), nn.Conv2d(8, 8, 1))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.first(x))
        return self.head((x + self.block(x)).mean((2, 3)))


def classified(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(model(batch["image"]), batch["label"])


def pictures(seed: int = 0, count: int = 4) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (count,), generator=random)
    return {"image": torch.randn(count, 3, 16, 16, generator=random), "label": labels}


@pytest.mark.parametrize("options", [{}, {"precision": "bf16"}], ids=["f32", "bf16"])
def test_a_network_agrees_with_its_interpreter_and_torch(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = compile_train_step(
        model, optimizer, loss_fn=classified, example=pictures(), device="cpu", further_sizes=1, **options
    )
    step.check(pictures(), steps=2)
    step.train_step(pictures(1))
    step.train_step(pictures(2, 3))


def test_images_with_channels_last_are_only_another_layout() -> None:
    torch.manual_seed(1)
    model, batch = Network(), pictures()
    step = compiled(model, classified, batch)
    batch["image"] = batch["image"].to(memory_format=torch.channels_last)
    expected = classified(model, batch)
    torch.testing.assert_close(step.train_step(batch), expected)


class Emptied(nn.Module):
    """A convolution of none of the images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x[:0])


def test_no_images_train_nothing() -> None:
    model, batch = Emptied(), {"x": torch.zeros(2, 3, 6, 6)}
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step = compiled(model, lambda m, b: m(b["x"]).sum(), batch)
    assert step.train_step(batch).item() == 0.0
    for parameter, was in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter.detach(), was)


def test_a_kernel_larger_than_the_image_is_refused_by_torch() -> None:
    with pytest.raises(Exception, match="Kernel size can't be greater than actual input size"):
        compiled(Fed(nn.Conv2d(1, 1, 5), (1, 1, 3, 3)), loss, {"scale": torch.ones(())})


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("padding", {"nn.unfold", "nn.fold"}),
        ("pointwise", set[str]()),
        ("patches", set[str]()),
        ("depthwise", {"nn.window_sum", "nn.window_product"}),
        ("transposed", {"nn.unfold", "nn.fold"}),
        ("transposed patches", set[str]()),
    ],
)
def test_which_windows_are_in_memory(name: str, ops: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of convolutions with more channels than these."""
    monkeypatch.setattr(convolutions, "MOST_CHANNELS", 0)
    make, shape = LAYERS[name]
    module = parse_module(compiled(Fed(make(), shape), loss, {"scale": torch.ones(())}).ir("step"))
    on_cpu = module.clone()
    ConvolutionsPass("sm_90").apply(make_context(), module)
    assert window_ops(module) == ops
    ConvolutionsPass().apply(make_context(), on_cpu)
    assert all(name.startswith("nn.convolution") for name in window_ops(on_cpu)), "for f32 there are kernels"


def window_ops(module: ModuleOp) -> set[str]:
    """The ops that have windows."""
    found = {op.name for op in module.walk()}
    return {name for name in found if re.match(r"nn\.(un)?fold|nn\.window_|nn\.convolution", name)}


@pytest.mark.skipif(
    not nvrtc.available() and shutil.which("nvcc") is None, reason="neither NVRTC nor nvcc is here"
)
def test_its_plan_for_a_gpu_compiles_without_one(tmp_path: Path) -> None:
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters())
    traced, stages = trace(model, classified, pictures(), optimizer=optimizer), Snapshots()
    run_stages(traced.module, make_context(), target="sm_90", after_each=stages)
    made = generated_kernels(find_program(stages["plan"]))
    looking = [kernel for kernel in made.values() if any(is_table(each) for each in kernel.body.args)]
    assert len(looking) >= 5
    if nvrtc.available():
        assert all(nvrtc.compile_cuda(generate(kernel).source, "sm_90") for kernel in looking)
        return
    files = [tmp_path / f"{kernel.id}.cu" for kernel in looking]
    for file, kernel in zip(files, looking, strict=True):
        file.write_text(generate(kernel).source)
    done = children.run(["nvcc", "-arch=sm_90", "-cubin", *map(str, files)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr

"""Parts of tensors, transposes and joins, each idiom three steps beside torch: loss, parameters, replay."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir import CompiledTrainStep, compile_eval_step, compile_train_step
from aicf_mlir.reports.describe import describe
from aicf_mlir.stages import make_context, run_stages
from aicf_mlir.text.parsing import parse_module
from aicf_mlir.tools.aicf_run import main as aicf_run

Body = Callable[[Any, torch.Tensor], Any]


class Net(nn.Module):
    """x [2, 6, 12] through a layer, then what a test does with it."""

    def __init__(self, body: Body):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.other = nn.Linear(12, 12), nn.Linear(12, 8)
        self.v = nn.Parameter(torch.randn(12))
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self, x)


def both(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return m.layer(x), m.other(x)


def swapped(parts: Any) -> torch.Tensor:
    first, second, *_ = parts
    return second * first.tanh()


def read_again(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.cat([a, b], -1).mean() + (a.mean() * b).mean()


IDIOMS: dict[str, Body] = {
    "chunk": lambda m, x: swapped(m.layer(x).chunk(3, -1)),
    "chunk, the last smaller": lambda m, x: m.layer(x).chunk(5, -1)[3] * m.layer(x).chunk(5, -1)[0],
    "split": lambda m, x: swapped(m.layer(x).split(4, -1)),
    "split of sizes": lambda m, x: torch.cat([p * p for p in m.layer(x).split([1, 4, 7], 2)[::-1]], 2),
    "split in one": lambda m, x: m.layer(x).split(12, -1)[0],
    "tensor_split": lambda m, x: (
        m.layer(x).tensor_split(5, 2)[1] + m.layer(x).tensor_split([1, 4], 2)[1].sum()
    ),
    "hsplit, vsplit": lambda m, x: m.layer(x).hsplit(2)[1] * m.layer(x).vsplit(2)[0].sum(1, keepdim=True),
    "unbind": lambda m, x: swapped(m.layer(x).unbind(1)),
    "iterated": lambda m, x: sum(i * row for i, row in enumerate(m.layer(x).view(12, 12))),
    "slices": lambda m, x: m.layer(x)[:, 1:4, :5] * m.layer(x)[:, -3:, 7:],
    "from an odd place on": lambda m, x: m.layer(x).flatten()[3:].tanh() * m.layer(x).flatten()[1:-2].relu(),
    "rows from an odd place on": lambda m, x: m.layer(x)[..., 9:].flatten(0, 1)[1:].tanh(),
    "slices of one tensor": lambda m, x: (lambda h: h[..., 4:] * h[..., :8] + h[..., 2:10])(m.layer(x)),
    "a slice of everything": lambda m, x: m.layer(x)[:][..., :],
    "a slice beyond the end": lambda m, x: m.layer(x)[:, 2:100],
    "shifted": lambda m, x: m.layer(x)[:, 1:] - m.layer(x)[:, :-1],
    "select": lambda m, x: m.layer(x)[1] * m.layer(x)[:, -1].sum(0),
    "one element": lambda m, x: m.layer(x)[0, 2, 3] * m.other(x),
    "None": lambda m, x: m.layer(x)[:, None, 2] + m.layer(x)[:, :, None].sum(2),
    "narrow": lambda m, x: m.layer(x).narrow(2, 3, 4) * m.layer(x).narrow(-1, -4, 4),
    "a slice of a parameter": lambda m, x: (
        x * m.v[3] + m.layer.weight[2:4].sum(0) + m.v[:6].repeat_interleave(1).sum()
    ),
    "a slice of the batch": lambda m, x: m.layer(x[:, :3]) + m.layer(x[:, 3:]),
    "cat": lambda m, x: torch.cat(both(m, x), -1),
    "cat of rows": lambda m, x: torch.cat([m.layer(x), m.layer(x) * 2, x], 1),
    "cat of activations": lambda m, x: torch.cat([h.relu() for h in both(m, x)], -1),
    "cat of one value twice": lambda m, x: (lambda h: torch.cat([h, h], -1))(m.layer(x)),
    "cat with the batch": lambda m, x: torch.cat([x, m.layer(x)], -1),
    "cat with an empty vector": lambda m, x: torch.cat([x.new_empty(0), m.layer(x)[0, 0]]),
    "cat of cats": lambda m, x: torch.cat([torch.cat(both(m, x), -1), torch.cat(both(m, x.relu()), -1)], 1),
    "cat read by its parts": lambda m, x: read_again(*both(m, x)),
    "cat of a chain": lambda m, x: (lambda h: torch.cat([h, m.layer(h)], -1))(m.layer(x)),
    "cat of what was split": lambda m, x: torch.cat(m.layer(x).chunk(3, -1), -1),
    "split of what was cat": lambda m, x: swapped(torch.cat(both(m, x), -1).split([12, 8], -1)[::-1][:1] * 2),
    "stack": lambda m, x: torch.stack([m.layer(x), x], 1),
    "stack last": lambda m, x: torch.stack([m.layer(x), m.layer(x).tanh()], -1),
    "rotation of halves": lambda m, x: (lambda a, b: torch.cat([-b, a], -1))(*m.layer(x).chunk(2, -1)),
    "heads": lambda m, x: m.layer(x).view(2, 6, 3, 4).transpose(1, 2),
    "heads and back": lambda m, x: (
        m.layer(x).view(2, 6, 3, 4).transpose(1, 2).transpose(1, 2).reshape(2, 6, 12)
    ),
    "turned and flat": lambda m, x: m.layer(x).permute(2, 0, 1).reshape(-1, 6),
    "gram": lambda m, x: m.layer(x) @ m.layer(x).mT,
    "gram of heads": lambda m, x: (lambda h: h @ h.mT)(m.layer(x).view(2, 6, 3, 4).transpose(1, 2)),
    "columns as rows": lambda m, x: m.layer(x).mT @ m.layer(x),
    "broadcast product": lambda m, x: m.layer(x) @ m.layer.weight[:, :4].expand(2, 12, 4),
    "a product of slices": lambda m, x: m.layer(x)[..., 2:6] @ m.layer.weight[2:6, 1:8],
    "a linear of a slice": lambda m, x: nn.functional.linear(m.layer(x)[..., 3:7], m.layer.weight[:, 3:7]),
    "a loss of a slice": lambda m, x: m.layer(x).view(12, 12)[:, :5].contiguous(),
}


def mean_square(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return (model(batch["x"]) ** 2).mean()


def compiled(model: nn.Module, device: str, x: torch.Tensor) -> CompiledTrainStep:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return compile_train_step(model, optimizer, example={"x": x}, loss_fn=mean_square, device=device)


@pytest.mark.parametrize("body", IDIOMS.values(), ids=IDIOMS)
def test_an_idiom_trains_as_in_torch(body: Body, device: str) -> None:
    model = Net(body).to(device)
    twin = copy.deepcopy(model).double()
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    batches = [torch.randn(2, 6, 12, device=device) for _ in range(4)]
    step = compiled(model, device, batches[0])
    for i, x in enumerate(batches):
        if i == 2:
            assert step.capture({"x": x}, verify="bitwise", steps=2).equal
        loss = step.train_step({"x": x}) if i < 2 else step.replay(inputs={"x": x}, sync=True)
        optimizer.zero_grad()
        expected = mean_square(twin, {"x": x.double()})
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=1e-7)
    for (name, ours), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5, msg=name)


class Attention(nn.Module):
    """Multi-head attention by hand, without a softmax."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) * shape[-1] ** -0.5
        return self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))


class Joined(nn.Module):
    """Two layers side by side, and one behind them."""

    def __init__(self, width: int):
        super().__init__()
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width + 4)
        self.out = nn.Linear(2 * width + 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.cat([self.left(x), self.right(x)], -1))


WITHOUT_COPIES: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: Attention(32, 4),
    "attention of one head": lambda: Attention(32, 1),
    "cat of two linears": lambda: Joined(32),
}


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize("make", WITHOUT_COPIES.values(), ids=WITHOUT_COPIES)
def test_no_launch_only_moves_elements(make: Callable[[], nn.Module], target: str) -> None:
    step = compiled(make(), "cpu", torch.randn(2, 16, 32))
    module = parse_module(step.ir("fused"))
    before = sum(launch.op == "copy" for launch in describe(module))
    run_stages(module, make_context(), first="kernel", target=target)
    assert before >= 2
    assert [launch.launch for launch in describe(module) if launch.op == "copy"] == []


@pytest.mark.parametrize("make", WITHOUT_COPIES.values(), ids=WITHOUT_COPIES)
def test_a_model_without_copies_trains_as_in_torch(make: Callable[[], nn.Module], device: str) -> None:
    torch.manual_seed(0)
    model = make().to(device)
    twin = copy.deepcopy(model).double()
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(2, 16, 32, device=device)
    step = compiled(model, device, x)
    for _ in range(5):
        loss = step.train_step({"x": x})
        optimizer.zero_grad()
        expected = mean_square(twin, {"x": x.double()})
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=1e-7)
    assert step.capture({"x": x}, verify="bitwise").equal
    for (name, ours), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5, msg=name)


EMPTY_PART = """\
plan.program @f target "cpu" peak 512 {
  plan.arena @input 256
  plan.arena @output 256
  plan.slot @x in @input[0] : memref<0x44xf64> input "x"
  plan.slot @part in @input[0] : memref<0x40xf64, strided<[44, 1], offset: 40>> input alias @x
  plan.slot @y in @output[0] : memref<0x40xf64> output "y"
  plan.launch @k0 "copy_cpu" copy x(@part) -> y(@y)
}
"""


def test_a_part_without_elements_lies_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its offset points behind the memory that it is a part of."""
    path = tmp_path / "plan.mlir"
    path.write_text(EMPTY_PART)
    assert aicf_run([str(path), "--compare=interp"]) == 0, capsys.readouterr()


@pytest.mark.parametrize("size", [7, 12])
@pytest.mark.parametrize("step", [2, 3, 8])
@pytest.mark.parametrize("start", [0, 1, -3])
@pytest.mark.parametrize("end", [None, -1])
def test_steps_of_a_slice(size: int, step: int, start: int, end: int | None) -> None:
    """Values and gradients; nothing is padded where whole groups of the step lie inside."""

    def loss(
        model: nn.Module, batch: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        x = batch["x"].requires_grad_()
        y = x[:, start:end:step]
        (g,) = torch.autograd.grad(y, [x], batch["weights"][:, : y.shape[1]])
        return batch["x"].sum() * 0, {"y": y.detach(), "g": g}

    batch = {"x": torch.randn(3, size, 2), "weights": torch.randn(3, size, 2)}
    wanted = {name: value.clone() for name, value in loss(nn.Module(), batch)[1].items()}
    batch["x"].requires_grad_(False)
    step_of_model = compile_eval_step(nn.Module(), loss_fn=loss, example=batch, device="cpu")
    step_of_model.eval_step(batch)
    for name, value in wanted.items():
        assert torch.equal(step_of_model.outputs[name], value), name
    assert ("nn.pad" in step_of_model.ir("nn")) == (wanted["y"].shape[1] * step > size)

"""A 2-d convolution, its gradients and a max pool as nests: generated code, and no kernel of their own."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest
import torch
from convolution_nests import write_nests
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.text.parsing import parse_module

SHAPES = {
    "padded": ((3, 3, 9, 8), lambda: nn.Conv2d(3, 5, 3, padding=1)),
    "strides": ((2, 4, 12, 13), lambda: nn.Conv2d(4, 6, (3, 5), stride=(2, 3), dilation=(2, 1))),
    "groups": ((2, 6, 10, 7), lambda: nn.Conv2d(6, 9, 3, padding=2, groups=3)),
    "many channels": ((1, 40, 8, 8), lambda: nn.Conv2d(40, 24, 3, padding=1, bias=False)),
    "a large kernel": ((2, 2, 20, 21), lambda: nn.Conv2d(2, 3, 11, padding=5)),
}
UNITS = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def mean(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return (model(batch["x"]).to(batch["w"].dtype) * batch["w"]).mean()


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("name", SHAPES)
def test_it_trains_as_in_torch(
    name: str, dtype: torch.dtype, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_nests(monkeypatch)
    shape, make = SHAPES[name]
    torch.manual_seed(0)
    model = nn.Sequential(make(), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)).to(dtype)
    for parameter in model.parameters():  # whole numbers: what is the largest does not depend on roundings
        parameter.data = torch.randn(parameter.shape).round().to(dtype)
    x = torch.randn(shape).round().to(dtype)
    batch = {"x": x, "w": torch.randn(model(x).shape)}
    reference = copy.deepcopy(model).double()
    model = model.to(device)
    given = {key: value.to(device) for key, value in batch.items()}
    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.0), loss_fn=mean, example=given, keep_gradients=True
    )
    launches = list(find_program(parse_module(step.ir("plan"))).launches)
    ours = [launch for launch in launches if "window" in str(launch)]
    assert len(ours) >= 4, "two convolutions, a pool, and the gradient of the weights"
    assert not any("convolution" in str(launch) for launch in launches)
    for replayed in (False, True):
        if replayed:
            step.capture(given)
            step.replay(1)
        else:
            step.train_step(given)
        wanted = mean(reference, {key: value.double() for key, value in batch.items()})
        reference.zero_grad()
        wanted.backward()
        for got, own in zip(model.parameters(), reference.parameters(), strict=True):
            assert got.grad is not None
            assert own.grad is not None
            largest = own.grad.abs().max()
            assert float((got.grad.cpu().double() - own.grad).abs().max()) <= UNITS[dtype] * float(largest)

"""A number beside a tensor of f16 or bf16 is one of that type where torch takes it so on each device, in gradients too.

Of comparisons and remainders that decides which side of a step an element is on; of a power the error grows with x.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from narrow_programs import DTYPES, Batch
from torch import Tensor, nn

from aicf_mlir import compile_train_step

NUMBERS = (0.3, 0.7, 1.001, -0.9999)
"""None is a number of f16 or bf16."""

COMPARISONS = (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)

OPS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "comparisons": lambda x, number: torch.cat(
        [torch.where(each(x, number), x, 0.0) for each in COMPARISONS]
    ),
    "fmod": lambda x, number: torch.fmod(x, number),
    "remainder": lambda x, number: torch.remainder(x, number),
    "remainder of a number": lambda x, number: torch.remainder(number, x.detach()) * x,
    "pow": lambda x, number: x.abs() ** number,
    "power of a number": lambda x, number: abs(number) ** x.clamp(-8, 8),
    "xlogy": lambda x, number: torch.xlogy(x, abs(number)),
    "xlog1py": lambda x, number: torch.special.xlog1py(x, number),
    "hardshrink": lambda x, number: F.hardshrink(x, abs(number)),
    "clamp": lambda x, number: x.clamp(min(number, 0.5), max(number, 0.5)),
}
GRADIENTS_ALONE: dict[str, Callable[[Tensor, float], Tensor]] = {
    "softshrink": lambda x, number: F.softshrink(x, abs(number)),
}
"""Whose result is another one on a CPU than on a GPU."""


class Applied(nn.Module):
    """An op on a parameter and each of the numbers."""

    def __init__(self, of: Callable[[Tensor, float], Tensor], dtype: torch.dtype):
        super().__init__()
        self.of = of
        self.x = nn.Parameter(torch.stack([values(number, dtype) for number in NUMBERS]))

    def forward(self) -> Tensor:
        return torch.stack([self.of(row, number) for row, number in zip(self.x, NUMBERS, strict=True)])


def values(number: float, dtype: torch.dtype) -> Tensor:
    """Of both signs: what is next to the number in this type, and up to far from it."""
    at = torch.tensor([number, -number], dtype=dtype)
    around = [at, *(torch.nextafter(at, torch.full_like(at, end)) for end in (-9.0, 9.0))]
    far = torch.logspace(-2, 4, 58).to(dtype)
    return torch.cat([*around, far, -far])


def loss(model: Applied, batch: Batch) -> tuple[Tensor, Batch]:
    y = model()
    return (y.float() * batch["weight"][:, : y.shape[1]]).sum(), {"y": y}


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("name", [*OPS, *GRADIENTS_ALONE])
def test_a_number_is_of_the_type_of_its_tensor(name: str, element: str, device: str) -> None:
    dtype = DTYPES[element]
    model = Applied((OPS | GRADIENTS_ALONE)[name], dtype).to(device)
    rows, columns = model.x.shape
    weight = torch.rand(rows, len(COMPARISONS) * columns, generator=torch.Generator().manual_seed(0)) + 0.5
    batch = {"weight": weight.to(device)}
    reference = copy.deepcopy(model)
    expected, told = loss(reference, batch)
    expected.backward()
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        loss_fn=loss,
        example=batch,
        device=device,
        keep_gradients=True,
    )
    step.train_step(batch)
    type_ = torch.finfo(dtype)
    if name not in GRADIENTS_ALONE:
        assert_near(step.outputs["y"], told["y"].detach(), 1.5 * type_.eps)
    assert model.x.grad is not None and reference.x.grad is not None
    assert_near(model.x.grad, reference.x.grad, 4 * type_.eps)  # torch rounds each step of a formula
    step.close()


def assert_near(got: Tensor, expected: Tensor, relative: float) -> None:
    torch.testing.assert_close(
        got, expected, rtol=relative, atol=torch.finfo(expected.dtype).tiny, equal_nan=True
    )

"""Small matrices: factorisations, solutions and determinants, their gradients and the gradients of those, beside torch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_torch import Loss, assert_near, compiled, losses_of_torch
from torch import Tensor, nn

from aicf_mlir import DataError, TraceError

linalg: Any = torch.linalg
Function = Callable[[Tensor, Tensor], Tensor]


class Matrices(nn.Module):
    """Matrices [2, 3, 3] of which no minor is small, and what makes others of them."""

    def __init__(self, size: int = 3) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.a = nn.Parameter(torch.randn(2, size, size, generator=draw, dtype=torch.float64))

    def forward(self) -> Tensor:
        """The matrices."""
        return self.a


def positive(a: Tensor) -> Tensor:
    return a @ a.mT + torch.eye(a.shape[-1], dtype=a.dtype)


def triangle(a: Tensor) -> Tensor:
    return a + 3 * torch.eye(a.shape[-1], dtype=a.dtype)


def moved(a: Tensor) -> Tensor:
    """Matrices that no elimination without an exchange of rows solves well."""
    return triangle(a).roll(1, -2)


FUNCTIONS: dict[str, Function] = {
    "x xT": lambda a, b: a @ a.mT,
    "xT x": lambda a, b: a[..., :2].mT @ a[..., :2],
    "cholesky": lambda a, b: linalg.cholesky(positive(a)),
    "cholesky, of a parameter": lambda a, b: linalg.cholesky(a + 6 * torch.eye(a.shape[-1]).to(a)),
    "cholesky, upper": lambda a, b: linalg.cholesky(positive(a), upper=True),
    "cholesky_ex": lambda a, b: linalg.cholesky_ex(positive(a)).L,
    "triangle": lambda a, b: linalg.solve_triangular(triangle(a), b, upper=False),
    "triangle, upper": lambda a, b: linalg.solve_triangular(triangle(a), b, upper=True),
    "triangle, right": lambda a, b: linalg.solve_triangular(triangle(a), b.mT, upper=True, left=False),
    "triangle, unit": lambda a, b: linalg.solve_triangular(a, b, upper=False, unitriangular=True),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, linalg.cholesky(positive(a))),
    "cholesky_inverse": lambda a, b: torch.cholesky_inverse(linalg.cholesky(positive(a))),
    "solve": lambda a, b: linalg.solve(moved(a), b),
    "solve, right": lambda a, b: linalg.solve(moved(a), b.mT, left=False),
    "solve, vectors": lambda a, b: linalg.solve(moved(a), b[..., 0]),
    "solve, shared": lambda a, b: linalg.solve(moved(a)[0], b),
    "inv": lambda a, b: linalg.inv(moved(a)),
    "inverse": lambda a, b: moved(a).inverse(),
    "det": lambda a, b: linalg.det(moved(a)),
    "slogdet": lambda a, b: linalg.slogdet(moved(a)).logabsdet * linalg.slogdet(moved(a)).sign,
    "logdet": lambda a, b: torch.logdet(positive(a)),
    "matrix_power": lambda a, b: linalg.matrix_power(moved(a), -2),
    "vmap": lambda a, b: torch.vmap(lambda x, y: linalg.solve_ex(x, y).result)(moved(a), b),
    "vmap of det": lambda a, b: torch.vmap(linalg.det)(moved(a)),
    "vmap of slogdet": lambda a, b: torch.vmap(lambda x: linalg.slogdet(x).logabsdet)(moved(a)),
    "vmap of cholesky_ex": lambda a, b: torch.vmap(lambda x: linalg.cholesky_ex(positive(x)).L)(a),
}


def a_batch(size: int = 3) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(2)
    return {"b": torch.randn(2, size, 2, generator=draw, dtype=torch.float64)}


def assert_steps(model: nn.Module, loss: Loss, batch: dict[str, Tensor], tolerance: float) -> None:
    """Losses and parameters are torch's after two steps."""
    other = copy.deepcopy(model)
    wanted = losses_of_torch(other, torch.optim.SGD(other.parameters(), lr=0.05), loss, batch, 2)
    step = compiled(model, loss, batch)
    for each in wanted:
        assert_near(step.train_step(batch), each, tolerance, "loss")
    for own, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert_near(own.detach(), theirs.detach(), tolerance, "parameter")


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_matrices(name: str, order: int) -> None:
    function = FUNCTIONS[name]

    def loss(model: Any, batch: dict[str, Tensor]) -> Tensor:
        a = model()
        value = function(a, batch["b"])
        value = (value * torch.linspace(0.5, 1.5, value.numel(), dtype=a.dtype).view_as(value)).sin().sum()
        if order == 2:
            (gradient,) = torch.autograd.grad(value, a, create_graph=True)
            value = (0.1 * gradient).sin().sum()
        return 0.01 * value

    assert_steps(Matrices(), loss, a_batch(), 1e-9)


def test_a_gaussian_process() -> None:
    """Its marginal likelihood of 8 points, by a distribution of torch."""

    class Kernel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log = nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            length, scale, noise = self.log.exp()
            squared = (x[:, None] - x[None]).square() / length
            return scale * torch.exp(-0.5 * squared) + (0.1 * noise + 1e-3) * torch.eye(len(x))

    def loss(model: Any, batch: dict[str, Tensor]) -> Tensor:
        zero = torch.zeros(8)
        factor = torch.linalg.cholesky(model(batch["x"]))
        law = torch.distributions.MultivariateNormal(zero, scale_tril=factor)
        return -law.log_prob(batch["y"]) / 8

    x = torch.linspace(0, 4, 8)
    assert_steps(Kernel(), loss, {"x": x, "y": torch.sin(x)}, 2e-4)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a: linalg.cholesky(a), "positive-definite"),
        (lambda a: linalg.inv(a), "not singular"),
        (lambda a: linalg.solve(a, a[..., :1]), "not singular"),
    ],
)
def test_values_that_torch_refuses_fail_the_step(function: Callable[[Tensor], Tensor], message: str) -> None:
    model = nn.Linear(3, 3, bias=False)
    good = {"a": torch.eye(3).repeat(2, 1, 1)}
    bad = {"a": good["a"].clone()}
    bad["a"][1, 1, 1] = 0
    step = compiled(model, lambda model, b: function(b["a"]).mean() + model(b["a"]).mean(), good)
    step.train_step(good)
    before = model.weight.detach().clone()
    with pytest.raises(DataError, match=message):
        step.train_step(bad)
    assert torch.equal(model.weight, before)
    with pytest.raises(RuntimeError):
        function(bad["a"])
    assert math.isfinite(step.train_step(good).item())


def test_info_says_which_minor_is_not_positive() -> None:
    model = nn.Linear(3, 3, bias=False)
    bad = torch.eye(3).repeat(3, 1, 1)
    bad[1, 1, 1], bad[2, 0, 0] = -1, 0

    def loss(model: Any, b: dict[str, Tensor]) -> Any:
        return model(b["a"]).mean(), {"info": linalg.cholesky_ex(b["a"]).info}

    step = compiled(model, loss, {"a": bad})
    step.train_step({"a": bad})
    assert step.outputs["info"].tolist() == linalg.cholesky_ex(bad).info.tolist() == [0, 2, 1]


def test_a_large_matrix_is_refused() -> None:
    with pytest.raises(TraceError, match="a matrix of 33 rows; supported are at most 32"):
        compiled(Matrices(33), lambda m, b: linalg.det(m()).sum(), a_batch(33))


def test_a_check_inside_of_vmap_is_refused() -> None:
    with pytest.raises(
        TraceError, match=r"linalg_inv checks values inside of vmap .*; call it on the whole batch"
    ):
        compiled(Matrices(), lambda m, b: torch.vmap(linalg.inv)(m()).sum(), a_batch())


def test_12_rows() -> None:
    def loss(model: Any, b: dict[str, Tensor]) -> Tensor:
        return linalg.cholesky(positive(model()) / 12).square().mean()

    model, batch = Matrices(12), a_batch(12)
    assert compiled(model, loss, batch).train_step(batch).item() == pytest.approx(
        loss(Matrices(12), batch).item(), rel=1e-9
    )

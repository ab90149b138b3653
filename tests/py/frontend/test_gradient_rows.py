"""Jacobians of many rows: the rows are a dimension, by torch's rules for vmap, and are those that are taken one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transform_cases
from autograd_functions import Outer, Swish
from beside_torch import assert_near, assert_trains, compiled, losses_of_torch
from inner_gradient_cases import CASES, Batch, a_batch, points, tanh_net
from torch import Tensor, nn
from torch.autograd import grad
from torch.func import functional_call, jacfwd, jacrev, vmap
from torch.nn import functional as F

from aicf_mlir import TraceError, compile_step
from aicf_mlir.frontend import gradient_rows

functional: Any = torch.autograd.functional
vjp: Any = torch.func.vjp
Loss = Callable[[Any, Batch], Tensor]

MANY, TOLERANCE = 140, 1e-11


def many() -> Batch:
    seeds = points("seeds", width=MANY, rows=MANY)
    return points("x", rows=MANY) | points("z", "w", width=2, rows=MANY) | seeds


def given_rows(m: Any, b: Batch) -> Tensor:
    x = b["z"].requires_grad_()
    (found,) = grad(m(x), x, b["seeds"][..., None], create_graph=True, is_grads_batched=True)
    return found.square().mean()


def of_parameters(m: Any, b: Batch) -> Tensor:
    """Rows of gradients with respect to parameters, as of a tangent kernel."""
    y = m(b["z"])[:, 0]
    found = grad(y, list(m.parameters()), torch.eye(len(y)).to(y), create_graph=True, is_grads_batched=True)
    rows = torch.cat([each.flatten(1) for each in found], 1)
    return (rows @ rows.t()).square().mean()


def one_of_the_other(m: Any, b: Batch) -> Tensor:
    """The gradient of the first counts what goes through the second."""
    x = b["z"].requires_grad_()
    h = m[:2](x)
    found = grad(m[2:](h), [h, x], b["seeds"][..., None], create_graph=True, is_grads_batched=True)
    return found[0].sin().mean() + found[1].square().mean()


def of_a_gradient(m: Any, b: Batch) -> Tensor:
    """What is differentiated is a gradient with respect to something that all rows share."""
    x = b["z"].requires_grad_()
    (first,) = grad(m(x).square().sum(), m[2].weight, create_graph=True)
    seeds = b["seeds"][:20, :64].reshape(20, 8, 8)
    (found,) = grad(first, x, seeds, create_graph=True, is_grads_batched=True)
    return found.square().mean()


def pulled(m: Any, b: Batch) -> Tensor:
    value, pull = vjp(m, b["z"])
    return vmap(lambda seed: pull(seed[:, None])[0])(b["seeds"]).square().mean() + value.mean()


def pulled_twice(m: Any, b: Batch) -> Tensor:
    _, pull = vjp(m, b["z"])
    seeds = b["seeds"].reshape(10, 14, MANY, 1)
    return vmap(vmap(lambda seed: pull(seed)[0].sin()))(seeds).square().mean()


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own jvp

LOSSES: dict[str, tuple[int, Loss]] = {
    "jacrev": (1, lambda m, b: jacrev(m)(b["z"]).square().mean()),
    "jacfwd": (MANY, lambda m, b: jacfwd(m)(b["z"][:70]).square().mean()),
    "vmap of jacrev": (MANY, lambda m, b: vmap(jacrev(m))(b["z"][:3]).square().mean()),
    "jacrev of jacrev": (9, lambda m, b: jacrev(jacrev(m))(b["z"][:2, :]).square().mean()),
    "given rows": (1, given_rows),
    "of parameters": (1, of_parameters),
    "one of the other": (1, one_of_the_other),
    "of a gradient": (1, of_a_gradient),
    "vmap of vjp": (1, pulled),
    "vmap of vmap of vjp": (1, pulled_twice),
    "functional": (
        1,
        lambda m, b: functional.jacobian(m, b["z"], create_graph=True, vectorize=True).square().mean(),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_many_rows_are_torchs(name: str) -> None:
    outputs, loss = LOSSES[name]
    torch.manual_seed(0)
    assert_trains(tanh_net(2, outputs).double(), loss, many(), TOLERANCE)


ROWS = ("jacrev", "batched", "kernel", "linearize", "hessian", "jacobian", "Jacobian")
WITH_ROWS = {
    name: case for name, case in (CASES | transform_cases.CASES).items() if any(each in name for each in ROWS)
}


@pytest.mark.parametrize("name", WITH_ROWS)
def test_few_rows_taken_together_are_torchs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_rows, "FEW", 0)
    torch.manual_seed(0)
    assert_trains(WITH_ROWS[name][0]().double(), WITH_ROWS[name][1], a_batch(), TOLERANCE)


class Layered(nn.Module):
    """A function [4, 2] to [4, 3] with a layer between."""

    def __init__(self, name: str):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleDict(
            {
                "layer norm": nn.LayerNorm(8),
                "batch norm": nn.BatchNorm1d(8),
                "embedding": nn.Embedding(5, 8),
                "convolution": nn.Conv1d(8, 8, 3, padding=1),
                "cell": nn.GRUCell(8, 8),
                "first": nn.Linear(8, 8),
            }
        )
        self.first, self.last, self.name = nn.Linear(2, 8), nn.Linear(8, 3), name

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(BETWEEN[self.name](self.layers, self.first(x))))


def in_place(layers: Any, h: Tensor) -> Tensor:
    y = h * 1
    y[:, 0] = y[:, 1].exp()
    return y


def solved(h: Tensor) -> Tensor:
    return torch.linalg.solve_ex(3 * torch.eye(3).to(h) + h.t() @ h, h.t()).result.t()


swish, outer, vector_norm = Swish.apply, Outer.apply, torch.linalg.vector_norm

BETWEEN: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "layer norm": lambda layers, h: layers["layer norm"](h),
    "batch norm": lambda layers, h: layers["batch norm"](h),
    "embedding": lambda layers, h: h * layers["embedding"](torch.arange(len(h)) % 5),
    "convolution": lambda layers, h: layers["convolution"](h.t()[None])[0].t(),
    "cell": lambda layers, h: layers["cell"](h, h.sin()),
    "softmax": lambda layers, h: h.softmax(-1),
    "norm": lambda layers, h: h / vector_norm(h, dim=-1, keepdim=True),
    "pooling": lambda layers, h: F.max_pool1d(h[None], 3, 1, 1)[0],
    "sort": lambda layers, h: h.sort(-1).values,
    "a vector": lambda layers, h: h + layers["first"](h[0]),
    "in place": in_place,
    "a function": lambda layers, h: swish(h),
    "a function with another inside": lambda layers, h: outer(h),
    "sums": lambda layers, h: h.cumsum(-1),
    "a solution": lambda layers, h: torch.cat([solved(h[:, :3]), h[:, 3:]], 1),
}


NOT_IN_TORCH = ("batch norm", "a function", "a function with another inside")
"""Running statistics and functions without `setup_context`: torch refuses their rows."""


def written_norm(layers: Any, h: Tensor) -> Tensor:
    norm = layers["layer norm"]
    variance = h.var(-1, correction=0, keepdim=True)
    return (h - h.mean(-1, keepdim=True)) / (variance + norm.eps).sqrt() * norm.weight + norm.bias


WRITTEN = {"layer norm": written_norm}
"""What torch trains instead: in f64 its gradient of `jacrev` of a layer norm is 3 % off its own gradients row by row."""


def of_inputs(m: Any, b: Batch) -> Tensor:
    return jacrev(m)(b["z"][:3]).square().mean()


def of_weights(m: Any, b: Batch) -> Tensor:
    found = jacrev(lambda w: functional_call(m, w, (b["z"][:3],)))(dict(m.named_parameters()))
    return torch.stack([each.square().mean() for each in found.values()]).sum()


@pytest.mark.parametrize("loss", [of_inputs, of_weights])
@pytest.mark.parametrize("name", BETWEEN)
def test_rows_taken_together_are_those_taken_one_by_one(
    name: str, loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are torch's too, where torch has them."""
    found: list[list[Tensor]] = []
    for few in (0, 1000):
        monkeypatch.setattr(gradient_rows, "FEW", few)
        model = Layered(name).double()
        step = compiled(model, loss, a_batch())
        losses = [step.train_step(a_batch()).clone() for _ in range(2)]
        found.append([torch.stack(losses), *(each.detach() for each in model.parameters())])
        gradients = step.ir("nn").count("train.gradient")
        assert gradients == (1 if few == 0 else 9)
    model = Layered(name).double()
    if name in NOT_IN_TORCH:
        with pytest.raises(RuntimeError):
            loss(model, a_batch())
    else:
        monkeypatch.setitem(BETWEEN, name, WRITTEN.get(name, BETWEEN[name]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = losses_of_torch(model, optimizer, loss, a_batch(), 2)
        found.append([torch.stack(losses), *(each.detach() for each in model.parameters())])
    for others in found[1:]:
        for together, apart in zip(found[0], others, strict=True):
            assert_near(together, apart, TOLERANCE, name)


@pytest.mark.parametrize("rows", [gradient_rows.FEW, gradient_rows.FEW + 1])
def test_more_than_a_few_rows_are_taken_together(rows: int) -> None:
    step = compiled(nn.Linear(2, rows).double(), lambda m, b: jacrev(m)(b["z"][0]).sin().mean(), a_batch())
    assert step.ir("nn").count("train.gradient") == (rows if rows <= gradient_rows.FEW else 1)


def fails(*_: Any) -> Any:
    raise RuntimeError("a fault of a rule")


@pytest.mark.parametrize("few", [0, 16])
def test_an_error_that_is_no_lack_of_a_rule_is_the_traces(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are not taken one by one instead, which would hide it."""
    monkeypatch.setattr(gradient_rows, "FEW", few)
    if few:
        monkeypatch.setattr(gradient_rows, "GRADIENT", fails)
    else:
        monkeypatch.setitem(gradient_rows.INSTEAD, torch.ops.aten.tanh.default, fails)
    with pytest.raises(TraceError, match=rf"^{__file__}:\d+: RuntimeError: a fault of a rule"):
        compiled(tanh_net(2, 2).double(), lambda m, b: jacrev(m)(b["z"]).square().mean(), a_batch())


def dropped(m: Any, b: Batch) -> Any:
    y = m(b["z"])

    def masked(h: Tensor) -> tuple[Tensor, Tensor]:
        return (kept := F.dropout(h, 0.5)), kept

    found, kept = jacrev(masked, has_aux=True)(y[0])
    return y.square().mean() + found.mean(), {"wrong": found.diagonal() * y[0] - kept, "mask": kept}


def test_rows_of_a_function_that_draws_have_the_mask_of_its_forward() -> None:
    step = compiled(nn.Linear(2, 40).double(), dropped, a_batch())
    step.train_step(a_batch())
    assert step.outputs["wrong"].abs().max() < 1e-12
    assert 0 < (step.outputs["mask"] == 0).sum() < 40


def test_more_rows_of_a_function_that_draws_are_refused() -> None:
    message = r"takes 140 gradients of one value .* \(aten.native_dropout.default draws random numbers\), and at most 128"
    with pytest.raises(TraceError, match=message):
        compiled(nn.Linear(2, MANY).double(), dropped, a_batch())


@pytest.mark.parametrize("few", [0, 16])
def test_rows_under_autocast_are_torchs(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to rounding to 16 bits, which torch does in another order."""
    monkeypatch.setattr(gradient_rows, "FEW", few)

    def loss(m: Any, b: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return jacrev(lambda x: m(x).float())(b["z"].float()).float().square().mean()

    torch.manual_seed(0)
    model = tanh_net(2, 2)
    wanted = loss(model, a_batch()).detach()
    assert_near(compiled(model, loss, a_batch()).train_step(a_batch()), wanted, 5e-3, "loss")


@pytest.mark.parametrize("across", [False, True])
def test_a_loop_body_trains_with_the_gradients_of_each_sample(across: bool) -> None:
    """As in differentially private training: each is clipped alone. The loss is that of all rows."""

    def world() -> tuple[nn.Module, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def body(b: Any) -> Tensor:
            weights = {name: p.detach() for name, p in model.named_parameters()}

            def of_one(given: Any, x: Tensor, t: Tensor) -> Any:
                loss = (functional_call(model, given, (x[None],))[0] - t).square().sum()
                return loss, loss

            batch = (b["x"].T, b["t"].T) if across else (b["x"], b["t"])
            taken = torch.func.grad(of_one, has_aux=True)
            found, losses = vmap(taken, in_dims=(None, int(across), int(across)))(weights, *batch)
            norms = torch.stack([each.flatten(1).norm(dim=1) for each in found.values()]).norm(dim=0)
            for name, p in model.named_parameters():
                p.grad = torch.einsum("n,n...->...", (0.1 / norms).clamp(max=1), found[name])
            optimizer.step()
            return losses.sum()

        return model, body

    (ours, body), (theirs, reference) = world(), world()
    torch.manual_seed(1)
    batch = {"x": torch.randn(5, 3).double(), "t": torch.randn(5, 2).double()}
    step = compile_step(body, example=[batch], device="cpu")
    for _ in range(3):
        wanted = reference(batch)
        torch.testing.assert_close(step(batch), wanted, rtol=1e-12, atol=0)
        torch.testing.assert_close(step.loss, wanted, rtol=1e-12, atol=0)
    for got, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-13)

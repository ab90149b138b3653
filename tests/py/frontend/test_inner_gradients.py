"""Gradients that a step takes itself, to any order, beside torch in float64: in a loss, and in a loop body."""

from __future__ import annotations

import warnings
from typing import Any

import inner_gradient_cases
import pytest
import torch
import transform_cases
from beside_torch import assert_near, assert_trains, compiled, losses_of_torch
from inner_gradient_cases import Batch, a_batch
from torch.autograd import forward_ad, grad
from torch.nn.attention import SDPBackend, sdpa_kernel

from aicf_mlir import TraceError, compile_eval_step, compile_step, compile_train_step

TOLERANCE = 1e-11

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own jvp

CASES = inner_gradient_cases.CASES | transform_cases.CASES


def model_of(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return CASES[name][0]().double()


@pytest.mark.parametrize("name", CASES)
def test_a_loss_that_takes_gradients_trains_as_in_torch(name: str) -> None:
    assert_trains(model_of(name), CASES[name][1], a_batch(), TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_a_loop_body_that_takes_gradients_trains_as_in_torch(name: str) -> None:
    loss_of, batch = CASES[name][1], a_batch()

    def world() -> tuple[torch.nn.Module, Any]:
        model = model_of(name)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def body(b: Batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, b)
            loss.backward()
            optimizer.step()
            return loss

        return model, body

    (ours, body), (theirs, reference) = world(), world()
    step = compile_step(body, example=[batch], device="cpu")
    for _ in range(3):
        wanted = reference({key: tensor.detach() for key, tensor in batch.items()})
        assert_near(step(dict(batch)).detach(), wanted.detach(), TOLERANCE, "loss")
    for (key, got), wanted in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_near(got.detach(), wanted.detach(), TOLERANCE, key)


def test_a_parameter_has_a_gradient_where_it_has_one_in_torch() -> None:
    """Weight decay moves a parameter whose gradient is 0, and none without a gradient."""
    batch = a_batch()
    ours, theirs = model_of("vanishing"), model_of("vanishing")
    loss = CASES["vanishing"][1]
    step, expected = (torch.optim.AdamW(each.parameters(), weight_decay=0.5) for each in (ours, theirs))
    compiled = compile_train_step(ours, step, loss_fn=loss, example=batch, device="cpu")
    for _ in range(2):
        compiled.train_step(dict(batch))
        expected.zero_grad()
        loss(theirs, {key: tensor.detach() for key, tensor in batch.items()}).backward()
        expected.step()
    gradients = {name: each.grad for name, each in theirs.named_parameters()}
    assert gradients["0.bias"] is not None
    assert gradients["2.bias"] is None
    for (key, got), wanted in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_near(got.detach(), wanted.detach(), TOLERANCE, key)
    assert len(step.state) == len(expected.state)


def freed(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    y = model(x).square().sum()
    (found,) = grad(y, x)
    return y + found.sum()


def freed_inside(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    y = model(x).square().sum()
    return model(x).sum() + grad(y, x)[0].sum() + grad(y, x)[0].sum()


def without_seeds(model: Any, b: Batch) -> torch.Tensor:
    return grad(model(b["z"].requires_grad_()), b["z"], create_graph=True)[0].mean()


def of_another(model: Any, b: Batch) -> torch.Tensor:
    return grad(model(b["z"]).sum(), b["w"].requires_grad_(), create_graph=True)[0].mean()


def of_none(model: Any, b: Batch) -> torch.Tensor:
    return grad(model(b["z"]).sum(), b["w"], create_graph=True)[0].mean()


def of_no_parameter(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    return grad((x**3).sum(), x, create_graph=True)[0].sum() + model(x).sum().detach()


def of_a_view(model: Any, b: Batch) -> torch.Tensor:
    whole = b["z"] * 1.0
    x = whole[:, :].requires_grad_()
    whole.mul_(2.0)
    return grad(model(x).sum(), x, create_graph=True)[0].square().mean()


def of_a_base(model: Any, b: Batch) -> torch.Tensor:
    x = torch.zeros_like(b["z"])
    part = x[:]
    x.requires_grad_()
    part.copy_(b["z"])
    return grad(model(x).sum(), x, create_graph=True)[0].square().mean()


def dual_under_no_grad(model: Any, b: Batch) -> torch.Tensor:
    with torch.no_grad(), forward_ad.dual_level():
        return forward_ad.unpack_dual(model(forward_ad.make_dual(b["z"], b["w"])))[0].mean()


def dual_through_no_grad(model: Any, b: Batch) -> torch.Tensor:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(b["z"], b["w"])
        with torch.no_grad():
            part = model(dual)
        return forward_ad.unpack_dual(part + model(dual))[0].mean()


def nested_duals(model: Any, b: Batch) -> torch.Tensor:
    with forward_ad.dual_level(), forward_ad.dual_level():
        return model(b["z"]).mean()


def dual_of_another_shape(model: Any, b: Batch) -> torch.Tensor:
    with forward_ad.dual_level():
        return model(forward_ad.make_dual(b["z"], b["w"][:2])).mean()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        return 2 * g[0]


def function_forwards(model: Any, b: Batch) -> torch.Tensor:
    doubled: Any = Doubled.apply
    return torch.func.jvp(lambda x: doubled(model(x)), (b["z"],), (b["w"],))[1].mean()


def linear_in_a_gradient(model: Any, b: Batch) -> torch.Tensor:
    value, along = torch.func.linearize(model, b["z"])
    return along(value * b["w"]).mean()


def of_values_on_meta(model: Any, b: Batch) -> torch.Tensor:
    return model(b["z"]).mean() + transform_cases.ON_META.weight.sum()


REFUSED: dict[str, tuple[Any, str]] = {
    "values on meta": (of_values_on_meta, "on the meta device, which has no values .*; give it some"),
    "duals under no_grad": (dual_under_no_grad, r"forward_ad is used under no_grad\(\)"),
    "a dual through no_grad": (dual_through_no_grad, r"a tangent may pass through no_grad\(\)"),
    "nested duals": (nested_duals, "Nested forward mode AD is not supported"),
    "a dual of another shape": (dual_of_another_shape, r"a tangent of shape \[2, 2\] for a tensor of shape"),
    "a function forwards": (function_forwards, "'Doubled' is differentiated forwards"),
    "a tangent with a gradient": (linear_in_a_gradient, "a tangent of torch.func.linearize has a gradient"),
    "a leaf whose memory is written to": (of_a_view, "changes a detached tensor in place"),
    "a leaf whose part is written to": (of_a_base, "changes a detached tensor in place"),
    "freed": (freed, "Trying to backward through the graph a second time"),
    "freed inside": (freed_inside, "Trying to backward through the graph a second time"),
    "without seeds": (without_seeds, r"needs grad_outputs for an output of shape \[6, 1\]"),
    "of another tensor": (of_another, "is not used in what is differentiated"),
    "of a tensor without a gradient": (of_none, "does not require grad"),
    "of no parameter": (of_no_parameter, "the loss depends on no parameter"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    loss, message = REFUSED[name]
    with pytest.raises(TraceError, match=message):
        compiled(inner_gradient_cases.tanh_net().double(), loss, a_batch())


def test_a_function_that_takes_a_gradient_draws_one_mask() -> None:
    """x · du/dx is u for a network without biases, if both have the same dropout."""
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 64, bias=False), torch.nn.Dropout(0.5), torch.nn.Linear(64, 1, bias=False)
    )

    def loss(model: Any, b: Batch) -> Any:
        x = b["z"].requires_grad_()
        u = model(x)
        away = u - (x * inner_gradient_cases.slope(u, x)).sum(1, keepdim=True)
        return u.sum(), {"away": away}

    step = compiled(net.double(), loss, a_batch())
    step.train_step(a_batch())
    first = step.outputs["away"].abs().max()
    assert first < 1e-13


class Attended(torch.nn.Module):
    """Attention of two heads, by torch's layer or by its function."""

    def __init__(self, is_layer: bool):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(2, 8), torch.nn.Linear(8, 1)
        self.layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.is_layer = is_layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x[None])
        if self.is_layer:
            return self.last(self.layer(h, h.sin(), h.cos(), need_weights=False)[0])
        q = h.view(1, -1, 2, 4).transpose(1, 2)
        found = torch.nn.functional.scaled_dot_product_attention(q, q.sin(), q.cos())
        return self.last(found.transpose(1, 2).reshape(1, -1, 8)) + 0 * self.layer.out_proj.weight.sum()


def curvature(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    first = inner_gradient_cases.slope(model(x), x)
    return inner_gradient_cases.slope(first.sin(), x).square().mean()


def curvature_by_math(model: Any, b: Batch) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return curvature(model, b)


@pytest.mark.parametrize("is_layer", [False, True])
@pytest.mark.parametrize("loss", [curvature, curvature_by_math])
def test_attention_is_differentiated_again_as_by_torchs_plain_form(loss: Any, is_layer: bool) -> None:
    """Torch has no second derivative of its fused forms, and refuses the loss that does not ask for the plain one."""
    model, reference = (Attended(is_layer).double() for _ in range(2))
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05)
    wanted = losses_of_torch(reference, optimizer, curvature_by_math, a_batch(), 3)
    step = compiled(model, loss, a_batch())
    for each in wanted:
        assert_near(step.train_step(a_batch()), each, TOLERANCE, "loss")
    for (key, got), each in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert_near(got.detach(), each.detach(), TOLERANCE, key)


def test_an_evaluation_takes_gradients() -> None:
    model = inner_gradient_cases.tanh_net().double()
    step = compile_eval_step(model, loss_fn=inner_gradient_cases.kdv, example=a_batch(), device="cpu")
    expected = inner_gradient_cases.kdv(model, a_batch())
    assert_near(step.eval_step(a_batch()), expected.detach(), TOLERANCE, "loss")


def test_a_loop_body_may_take_gradients_alone() -> None:
    """It writes to its parameters itself, and calls neither backward() nor an optimizer."""

    def world() -> tuple[torch.nn.Module, Any]:
        model = model_of("R1")

        def body(b: Batch) -> torch.Tensor:
            loss = inner_gradient_cases.r1(model, b)
            found = grad(loss, list(model.parameters()))
            with torch.no_grad():
                for weight, gradient in zip(model.parameters(), found, strict=True):
                    weight -= 0.05 * gradient
            return loss

        return model, body

    (ours, body), (theirs, reference) = world(), world()
    step = compile_step(body, example=[a_batch()], device="cpu")
    for _ in range(3):
        step(a_batch())
        reference(a_batch())
    for (key, got), wanted in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        if wanted[0] != "4.bias":  # it has none in torch, either
            assert_near(got.detach(), wanted[1].detach(), TOLERANCE, key)


def test_a_failed_trace_leaves_no_level_of_vmap() -> None:
    def loss(model: Any, b: Batch) -> torch.Tensor:
        return torch.vmap(lambda row: model(row).sum().item())(b["z"])

    with pytest.raises(TraceError):
        compiled(inner_gradient_cases.tanh_net().double(), loss, a_batch())
    torch.rand(2)  # refused inside of vmap


@pytest.mark.parametrize("retain", [False, True])
def test_a_loop_body_may_differentiate_a_loss_twice_if_it_retains_the_graph(retain: bool) -> None:
    def world() -> tuple[torch.nn.Module, Any]:
        model = model_of("R1")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def body(b: Batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(b["z"]).square().mean()
            loss.backward(retain_graph=retain)
            loss.backward()
            optimizer.step()
            return loss

        return model, body

    (ours, body), (theirs, reference) = world(), world()
    if not retain:
        for run in (
            lambda: reference(a_batch()),
            lambda: compile_step(body, example=[a_batch()], device="cpu"),
        ):
            with pytest.raises(
                (RuntimeError, TraceError), match="Trying to backward through the graph a second time"
            ):
                run()
        return
    compile_step(body, example=[a_batch()], device="cpu")(a_batch())
    reference(a_batch())
    for (key, got), wanted in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_near(got.detach(), wanted.detach(), TOLERANCE, key)


def test_a_loop_body_may_call_backward_with_create_graph() -> None:
    def world() -> tuple[torch.nn.Module, Any]:
        model = model_of("R1")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def body(b: Batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(b["z"]).square().mean()
            loss.backward(create_graph=True)
            found = [weight.grad for weight in model.parameters()]
            optimizer.zero_grad()
            total = loss + 0.1 * torch.stack([each.norm() for each in found if each is not None]).sum()
            total.backward()
            optimizer.step()
            return total

        return model, body

    (ours, body), (theirs, reference) = world(), world()
    step = compile_step(body, example=[a_batch()], device="cpu")
    for _ in range(3):
        step(a_batch())
        with warnings.catch_warnings(action="ignore"):  # torch warns of a reference cycle
            reference(a_batch())
    for (key, got), wanted in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_near(got.detach(), wanted.detach(), TOLERANCE, key)


DRAWS: dict[str, Any] = {
    "of the rows": lambda x: torch.rand_like(x) + 0 * x,
    "of a shape": lambda x: torch.rand(2, dtype=x.dtype) + 0 * x,
    "dropout": lambda x: torch.nn.functional.dropout(torch.ones_like(x)),
    "inside of a gradient": torch.func.grad(lambda x: torch.nn.functional.dropout(x).sum()),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("randomness", ["different", "same", "error"])
def test_vmap_draws_as_it_is_asked_to(name: str, randomness: str) -> None:
    def loss(model: Any, b: Batch) -> Any:
        rows = torch.vmap(DRAWS[name], randomness=randomness)(b["z"].repeat(3, 1))
        return model(b["z"]).mean(), {"rows": rows}

    model, batch = inner_gradient_cases.tanh_net().double(), a_batch()
    if randomness == "error":
        with pytest.raises(TraceError, match="vmap: called random operation while in randomness error mode"):
            compiled(model, loss, batch)
        return
    step, found = compiled(model, loss, batch), list[torch.Tensor]()
    for _ in range(16):  # of two numbers a dropout keeps the same ones in every fourth step
        step.train_step(batch)
        found.append(step.outputs["rows"].clone())
    distinct = {tuple(row) for each in found for row in each.tolist()}
    numbers = 16 if randomness == "same" else 16 * len(found[0])
    assert all((each == each[0]).all() for each in found) == (randomness == "same")
    assert len(distinct) == numbers if name.startswith("of") else 1 < len(distinct) <= 4

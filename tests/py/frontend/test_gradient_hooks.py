"""`register_hook` of parameters: the gradients of a step pass the hooks, as in torch, and a change of hooks is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aicf_mlir import BindError, GuardError, TraceError, compile_eval_step, compile_step, compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep

Hook = Callable[[torch.Tensor], Any]


class Tied(nn.Module):
    """Two layers of one weight, and a last one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


def model_of(device: str) -> Tied:
    torch.manual_seed(0)
    return Tied().to(device)


def batch_of(device: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(5, 6, generator=generator).to(device), torch.tensor([0, 1, 2, 1, 0], device=device)


def loss_of(model: Any, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def under_autocast(model: Any, batch: Any) -> torch.Tensor:
    with torch.autocast(batch[0].device.type, torch.bfloat16):
        return loss_of(model, batch)


def masked(model: Tied) -> None:
    mask = torch.ones_like(model.first.weight)
    mask[2] = 0
    model.first.weight.register_hook(lambda g: g * mask)


def clipped(model: Tied) -> None:
    for parameter in model.parameters():
        parameter.register_hook(lambda g: g.clamp(-0.01, 0.01))


def two(model: Tied) -> None:
    model.last.weight.register_hook(lambda g: g - g.mean())
    model.last.weight.register_hook(lambda g: None)
    model.last.weight.register_hook(lambda g: g.sign() * 0.01)


def of_frozen(model: Tied) -> None:
    clipped(model)
    model.last.requires_grad_(False)


def with_norms(model: Any, batch: Any) -> torch.Tensor:
    """With a term of what is a parameter to the user."""
    own = [p for p in model.parameters() if isinstance(p, nn.Parameter) and p.is_leaf and p.requires_grad]
    assert len(own) == 5
    with torch.no_grad():
        size = sum(p.abs().max() for p in own)
    return loss_of(model, batch) + sum(p.square().sum() for p in own) + size


CASES: dict[str, tuple[Callable[[Tied], None], Callable[..., torch.Tensor]]] = {
    "mask of a tied weight": (masked, loss_of),
    "clipped": (clipped, loss_of),
    "one after the other": (two, loss_of),
    "frozen": (of_frozen, loss_of),
    "autocast": (clipped, under_autocast),
    "norms": (clipped, with_norms),
}


def compiled(model: nn.Module, device: str, loss: Any = loss_of, **options: Any) -> CompiledTrainStep:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    return compile_train_step(
        model, optimizer, loss_fn=loss, example=batch_of(device), device=device, **options
    )


@pytest.mark.parametrize("name", CASES)
def test_gradients_pass_the_hooks_as_in_torch(name: str, device: str) -> None:
    hook, loss = CASES[name]
    ours, theirs = model_of(device), model_of(device)
    hook(ours)
    hook(theirs)
    step = compiled(ours, device, loss)
    optimizer = torch.optim.SGD([p for p in theirs.parameters() if p.requires_grad], lr=0.5)
    for number in range(4):
        if number == 2:
            step.capture(batch_of(device))
        given = batch_of(device, number)
        run = step.train_step if number < 2 else lambda batch: step.replay(inputs=batch)
        optimizer.zero_grad()
        wanted = loss(theirs, given)
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(run(given), wanted.detach(), rtol=1e-4, atol=1e-5)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def through_inputs(model: Any, batch: Any) -> torch.Tensor:
    x = batch[0].clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return loss_of(model, batch) + slope.square().mean()


def through_weights(model: Any, batch: Any) -> torch.Tensor:
    (slope,) = torch.autograd.grad(loss_of(model, batch), model.first.weight, create_graph=True)
    return loss_of(model, batch) + slope.square().sum()


def test_gradients_inside_the_step(device: str) -> None:
    """Hooks get the gradient through a gradient too; with respect to a parameter that has some it is refused."""
    ours, theirs = model_of(device), model_of(device)
    clipped(ours)
    clipped(theirs)
    loss = compiled(ours, device, through_inputs).train_step(batch_of(device))
    wanted = through_inputs(theirs, batch_of(device))
    wanted.backward()
    torch.optim.SGD(theirs.parameters(), lr=0.5).step()
    torch.testing.assert_close(loss, wanted.detach(), rtol=1e-4, atol=1e-5)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    with pytest.raises(TraceError, match="with respect to a parameter that has hooks"):
        compiled(ours, device, through_weights)


def test_a_parameter_that_is_read_beside_its_module_is_refused() -> None:
    model = model_of("cpu")
    clipped(model)
    held = [model.first.weight]
    with pytest.raises(
        TraceError, match=r"'(first|second)\.weight', which has gradient hooks, is read other than as"
    ):
        compiled(model, "cpu", lambda m, b: loss_of(m, b) + held[0].square().sum())


def test_a_certificate_of_hooks() -> None:
    model = model_of("cpu")
    clipped(model)
    step = compiled(model, "cpu")
    step.warmup(batch_of("cpu"))
    certificate = step.capture(batch_of("cpu"), verify="bitwise", steps=2)
    assert certificate.equal, str(certificate)


def test_other_hooks_are_noticed() -> None:
    model = model_of("cpu")
    masked(model)
    step, batch = compiled(model, "cpu"), batch_of("cpu")
    step.train_step(batch)
    before = [p.detach().clone() for p in model.parameters()]
    added = model.first.weight.register_hook(lambda g: g * 0)
    with pytest.raises(
        BindError, match=r"'(first|second)\.weight' has other gradient hooks than when it was compiled"
    ):
        step.train_step(batch)
    added.remove()
    of_another = model.last.weight.register_hook(lambda g: g * 0)
    with pytest.raises(BindError, match=r"'last\.weight' got a gradient hook after it was compiled"):
        step.train_step(batch)
    assert all(map(torch.equal, before, model.parameters()))
    step.recompile()
    step.train_step(batch)
    assert torch.equal(model.last.weight, before[-2])
    of_another.remove()
    with pytest.raises(BindError, match=r"'last\.weight' has other gradient hooks"):
        step.train_step(batch)


def test_what_a_hook_reads_is_guarded() -> None:
    model, factors = model_of("cpu"), {"first": 2.0}
    model.first.weight.register_hook(lambda g: g * factors["first"])
    step = compiled(model, "cpu")
    step.train_step(batch_of("cpu"))
    factors["first"] = 3.0
    with pytest.raises(GuardError, match=r"factors\['first'\] was 2\.0, now 3\.0"):
        step.train_step(batch_of("cpu"))


seen: list[torch.Tensor] = []

REFUSED: dict[str, tuple[Hook, str]] = {
    "no function of Python": (seen.append, "has backward_hooks, which a compiled step does not run"),
    "kept by a function": (
        lambda g: seen.append(g.norm()),
        "which has hooks, changes seen, which would happen once",
    ),
    "printed": (lambda g: print(g.norm()), "formats the value of a tensor"),
    "another shape": (
        lambda g: g[0],
        r"returned a gradient of shape \[6\] for the argument 0 of shape \[6, 6\]",
    ),
    "in place": (lambda g: g.mul_(2), "changes a tensor in place that it has not made"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_hook_must_not_do(name: str) -> None:
    hook, message = REFUSED[name]
    model = model_of("cpu")
    model.first.weight.register_hook(hook)
    with pytest.raises(TraceError, match=message):
        compiled(model, "cpu")
    assert not seen


def test_where_no_hook_is_called() -> None:
    model, batch = model_of("cpu"), batch_of("cpu")
    clipped(model)
    with pytest.raises(
        BindError, match="has gradient hooks, which a step of several micro-batches does not run"
    ):
        compiled(model, "cpu", accumulate=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with pytest.raises(TraceError, match="has backward_hooks, which a compiled step does not run"):
        compile_step(body, example=batch, device="cpu")
    beside = nn.Linear(6, 6)
    beside.weight.register_hook(lambda g: g * 0)
    with pytest.raises(TraceError, match="weight' has backward_hooks, which a compiled step does not run"):
        compiled(model, "cpu", lambda m, b: F.cross_entropy(m(beside(b[0])), b[1]))
    evaluated = compile_eval_step(model, loss_fn=loss_of, example=batch, device="cpu")
    torch.testing.assert_close(evaluated.eval_step(batch), loss_of(model, batch).detach())

"""Several compiled steps over one model, one optimizer or each other's networks, beside the same training in torch eager."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from aicf_mlir import (
    AicfError,
    BindError,
    GuardError,
    StateError,
    TraceError,
    compile_eval_step,
    compile_train_step,
)

Batch = dict[str, torch.Tensor]


class Gan(nn.Module):
    """Generator and discriminator in one wrapper."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.generator = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6))
        self.discriminator = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))


def discriminator_loss(gan: Any, batch: Batch) -> torch.Tensor:
    fake = gan.generator(batch["noise"]).detach()
    return (
        F.mse_loss(gan.discriminator(batch["real"]), batch["one"]) + gan.discriminator(fake).square().mean()
    )


def generator_loss(gan: Any, batch: Batch) -> torch.Tensor:
    return F.mse_loss(gan.discriminator(gan.generator(batch["noise"])), batch["one"])


def optimizers(gan: Gan) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    return (
        torch.optim.Adam(gan.discriminator.parameters(), lr=0.02),
        torch.optim.Adam(gan.generator.parameters(), lr=0.01, betas=(0.5, 0.999)),
    )


def gan_batch(seed: int, device: str) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"noise": (5, 4), "real": (5, 6)}
    batch = {name: torch.randn(shape, generator=generator).to(device) for name, shape in shapes.items()}
    return {**batch, "one": torch.ones(5, 1, device=device)}


def eager(loss_fn: Any, model: Any, optimizer: torch.optim.Optimizer, batch: Batch) -> torch.Tensor:
    optimizer.zero_grad()
    loss = loss_fn(model, batch)
    loss.backward()
    optimizer.step()
    return loss.detach()


def close(ours: nn.Module, theirs: nn.Module) -> None:
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=2e-4, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("closed_over", [False, True], ids=["in one wrapper", "closed over"])
def test_a_gan_trains_as_in_torch(closed_over: bool, device: str) -> None:
    ours, theirs = Gan().to(device), Gan().to(device)
    (d, g), (d_torch, g_torch) = optimizers(ours), optimizers(theirs)
    example = gan_batch(0, device)
    if closed_over:  # each step is compiled for one network, and its loss closes over the other
        generator, discriminator = ours.generator, ours.discriminator

        def d_loss(model: Any, batch: Batch) -> torch.Tensor:
            fake = generator(batch["noise"]).detach()
            return F.mse_loss(model(batch["real"]), batch["one"]) + model(fake).square().mean()

        def g_loss(model: Any, batch: Batch) -> torch.Tensor:
            return F.mse_loss(discriminator(model(batch["noise"])), batch["one"])

        d_step = compile_train_step(discriminator, d, loss_fn=d_loss, example=example, device=device)
        g_step = compile_train_step(generator, g, loss_fn=g_loss, example=example, device=device)
    else:
        d_step = compile_train_step(ours, d, loss_fn=discriminator_loss, example=example, device=device)
        g_step = compile_train_step(ours, g, loss_fn=generator_loss, example=example, device=device)
    for seed in range(6):
        batch = gan_batch(seed, device)
        torch.testing.assert_close(
            d_step.train_step(batch), eager(discriminator_loss, theirs, d_torch, batch)
        )
        if seed == 3:
            g_step.capture(batch)
        loss = g_step.replay(inputs=batch) if seed >= 3 else g_step.train_step(batch)
        torch.testing.assert_close(loss, eager(generator_loss, theirs, g_torch, batch))
    close(ours, theirs)
    for optimizer, mirror in ((d, d_torch), (g, g_torch)):
        for ours_entry, entry in zip(optimizer.state.values(), mirror.state.values(), strict=True):
            assert float(ours_entry["step"]) == float(entry["step"]) == 6


def network() -> Any:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def pretraining(model: nn.Module, batch: Batch) -> torch.Tensor:
    return model(batch["x"]).square().mean()


def fine_tuning(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def make_batch(seed: int, device: str) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(5, 4, generator=generator).to(device),
        "t": torch.randn(5, 3, generator=generator).to(device),
    }


def test_another_loss_goes_on_with_the_same_state(device: str) -> None:
    """Two losses under one optimizer, in turn: moments and counters are one."""
    ours, theirs = network().to(device), network().to(device)
    a, b = torch.optim.Adam(ours.parameters(), lr=0.02), torch.optim.Adam(theirs.parameters(), lr=0.02)
    example = make_batch(0, device)
    steps = [
        compile_train_step(ours, a, loss_fn=loss, example=example, device=device)
        for loss in (pretraining, fine_tuning)
    ]
    evaluate = compile_eval_step(ours, loss_fn=fine_tuning, example=example, device=device)
    for seed, which in enumerate((0, 0, 1, 0, 1, 1, 0)):
        batch = make_batch(seed, device)
        loss = steps[which].train_step(batch)
        torch.testing.assert_close(loss, eager((pretraining, fine_tuning)[which], theirs, b, batch))
        with torch.no_grad():
            torch.testing.assert_close(evaluate.eval_step(batch), fine_tuning(theirs, batch))
    close(ours, theirs)
    saved = steps[0].snapshot()
    before = [p.detach().clone() for p in ours.parameters()]
    steps[1].train_step(example)
    steps[0].restore(saved)
    assert all(torch.equal(p, q) for p, q in zip(ours.parameters(), before, strict=True))


def test_state_that_was_cleared_is_zero_for_a_step_that_never_ran(device: str) -> None:
    """Both find `opt.state` empty, as it was when the second was compiled; the memory of its moments is not."""
    ours, theirs = network().to(device), network().to(device)
    a, b = torch.optim.Adam(ours.parameters(), lr=0.02), torch.optim.Adam(theirs.parameters(), lr=0.02)
    example = make_batch(0, device)
    first, second = (
        compile_train_step(ours, a, loss_fn=loss, example=example, device=device)
        for loss in (pretraining, fine_tuning)
    )
    for _ in range(2):
        first.train_step(example)
        eager(pretraining, theirs, b, example)
    a.state.clear()
    b.state.clear()
    torch.testing.assert_close(second.train_step(example), eager(fine_tuning, theirs, b, example))
    close(ours, theirs)


def test_closing_one_step_leaves_the_others(device: str) -> None:
    ours, theirs = network().to(device), network().to(device)
    a, b = torch.optim.Adam(ours.parameters()), torch.optim.Adam(theirs.parameters())
    example = make_batch(0, device)
    first, second = (
        compile_train_step(ours, a, loss_fn=loss, example=example, device=device)
        for loss in (pretraining, fine_tuning)
    )
    first.train_step(example)
    eager(pretraining, theirs, b, example)
    first.close()
    for seed in range(3):
        batch = make_batch(seed, device)
        torch.testing.assert_close(second.train_step(batch), eager(fine_tuning, theirs, b, batch))
    close(ours, theirs)
    second.close()
    eager(fine_tuning, ours, a, example)
    eager(fine_tuning, theirs, b, example)
    close(ours, theirs)


def test_two_steps_over_one_model_run_one_at_a_time() -> None:
    ours, example = network(), make_batch(0, "cpu")
    optimizer = torch.optim.Adam(ours.parameters())
    first, second = (
        compile_train_step(ours, optimizer, loss_fn=loss, example=example, device="cpu")
        for loss in (pretraining, fine_tuning)
    )
    session: Any = vars(first)["_session"]
    with session, pytest.raises(StateError, match="in use by another thread"):
        second.train_step(example)
    second.train_step(example)


def test_layers_are_unfrozen_one_after_the_other(device: str) -> None:
    """`recompile` keeps parameters, moments and each parameter's own counter."""
    ours, theirs = network().to(device), network().to(device)
    a, b = torch.optim.Adam(ours.parameters(), lr=0.02), torch.optim.Adam(theirs.parameters(), lr=0.02)
    for model in (ours, theirs):
        model[0].requires_grad_(False)
    step = compile_train_step(ours, a, loss_fn=fine_tuning, example=make_batch(0, device), device=device)
    batch = make_batch(0, device)
    for _ in range(3):
        torch.testing.assert_close(step.train_step(batch), eager(fine_tuning, theirs, b, batch))
    for model in (ours, theirs):
        model[0].requires_grad_(True)
    with pytest.raises(BindError, match=r"'0.weight' had requires_grad=False.*recompile"):
        step.train_step(batch)
    step.recompile()
    for seed in range(3, 7):
        batch = make_batch(seed, device)
        torch.testing.assert_close(step.train_step(batch), eager(fine_tuning, theirs, b, batch))
    close(ours, theirs)
    assert [float(a.state[p]["step"]) for p in ours.parameters()] == [4, 4, 7, 7]


def test_recompile_takes_what_is_there_now(device: str) -> None:
    ours, theirs = network().to(device), network().to(device)
    a, b = torch.optim.Adam(ours.parameters(), lr=0.02), torch.optim.Adam(theirs.parameters(), lr=0.02)
    step = compile_train_step(ours, a, loss_fn=fine_tuning, example=make_batch(0, device), device=device)
    batch = make_batch(1, device)
    for _ in range(2):
        step.train_step(batch)
        eager(fine_tuning, theirs, b, batch)
    ours[1], theirs[1] = nn.ReLU(), nn.ReLU()
    with pytest.raises(GuardError, match=r"model\._modules"):
        step.train_step(batch)
    step.recompile()
    assert step.state == "created"
    step.warmup(batch)
    step.capture(batch)
    torch.testing.assert_close(step.replay(), eager(fine_tuning, theirs, b, batch))
    close(ours, theirs)


class LogGamma(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.erfinv(x)  # not supported


def test_a_failing_recompile_changes_nothing(device: str) -> None:
    ours = network().to(device)
    optimizer = torch.optim.Adam(ours.parameters(), lr=0.02)
    step = compile_train_step(
        ours, optimizer, loss_fn=fine_tuning, example=make_batch(0, device), device=device
    )
    step.train_step(make_batch(0, device))
    tanh = ours[1]
    ours[1] = LogGamma()
    with pytest.raises(TraceError, match="erfinv"):
        step.recompile()
    ours[1] = tanh
    step.capture(make_batch(0, device))
    step.replay()
    assert step.state == "captured"


def test_a_number_in_meta_is_one_with_the_attribute(device: str) -> None:
    """Read, written and saved under its name, and followed where the user changes it."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.layer, self.alpha = nn.Linear(4, 3), 0.5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.alpha

    ours, theirs = Scaled().to(device), Scaled().to(device)
    a, b = torch.optim.SGD(ours.parameters(), lr=0.1), torch.optim.SGD(theirs.parameters(), lr=0.1)
    batch = make_batch(0, device)
    step = compile_train_step(
        ours, a, loss_fn=fine_tuning, example=batch, device=device, meta=["model.alpha"]
    )
    step.train_step(batch)
    eager(fine_tuning, theirs, b, batch)
    step.capture(batch)
    for value in (0.25, 2.0):
        step.meta["model.alpha"] = value
        theirs.alpha = value
        assert ours.alpha == value == step.meta["model.alpha"]
        torch.testing.assert_close(
            step.replay(2), [eager(fine_tuning, theirs, b, batch) for _ in range(2)][-1]
        )
    ours.alpha = theirs.alpha = 0.75
    torch.testing.assert_close(step.replay(), eager(fine_tuning, theirs, b, batch))
    close(ours, theirs)
    with pytest.raises(BindError, match="expected a number"):
        step.meta["model.alpha"] = "much"  # type: ignore[assignment]
    with pytest.raises(
        TraceError, match=r"meta='model.beta': the step reads no number of that name.*model\.alpha"
    ):
        compile_train_step(ours, a, loss_fn=fine_tuning, example=batch, device=device, meta=["model.beta"])


def test_the_example_is_neither_kept_nor_looked_at_again(device: str) -> None:
    """A batch that is changed after compiling changes no later trace, and its memory is free."""
    ours = network().to(device)
    example = make_batch(0, device)
    step = compile_train_step(
        ours, torch.optim.Adam(ours.parameters()), loss_fn=fine_tuning, example=example, device=device
    )
    memory = weakref.ref(example["x"])
    example["x"] = example["x"][:2].clone()
    example["more"] = example["x"]
    assert memory() is None
    ours.train(False)
    ours[0].in_features = 4
    step.recompile()
    step.train_step(make_batch(1, device))


def test_a_number_that_is_not_finite_is_found_in_the_memory_of_another_step(device: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    batch = {"x": torch.randn(5, 3, device=device), "t": torch.randn(5, 2, device=device)}
    steps = [
        compile_train_step(model, optimizer, example=batch, device=device, check_finite=True)
        for _ in range(2)
    ]
    for step in steps:
        step.train_step(batch)
    with torch.no_grad():
        model[1].weight[1, 2] = float("inf")
    with pytest.raises(AicfError, match=r"\[1, 2\] of parameter '1\.weight' is inf; the loss is"):
        steps[1].train_step(batch)
        steps[1].synchronize()

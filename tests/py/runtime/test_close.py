"""Memory: `close` frees it at once, and a dropped step does not wait for the cyclic collector."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from models import CONTRACT_OPTIMIZERS, OptimizerConfig, Setup, compiled, mlp, regression
from oracle import assert_same_bits

import aicf_mlir.nn
from aicf_mlir import _C
from aicf_mlir.errors import StateError

ADAM = CONTRACT_OPTIMIZERS[3]


@contextmanager
def no_collector() -> Generator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def live(device: str) -> int:
    return _C.memory_stats("cpu" if device == "cpu" else "cuda:0")["live_bytes"]


def trained(optimizer: OptimizerConfig, device: str) -> Setup:
    setup = compiled(optimizer, device)
    setup.train(2)
    setup.step.capture(setup.batch)
    setup.step.replay(2)
    return setup


@pytest.mark.parametrize("optimizer", CONTRACT_OPTIMIZERS, ids=str)
def test_close_frees_all_and_keeps_the_values(optimizer: OptimizerConfig, device: str) -> None:
    with no_collector():
        before = live(device)
        setup = trained(optimizer, device)
        values, parameters = setup.values(), list(setup.model.parameters())
        setup.step.close()
        assert live(device) == before
    assert_same_bits(setup.values(), values)
    assert all(a is b for a, b in zip(setup.model.parameters(), parameters, strict=True))
    assert setup.step.state == "closed"
    setup.step.close()


def test_torch_trains_on_after_close(device: str) -> None:
    setup, control = trained(ADAM, device), trained(ADAM, device)
    setup.step.close()
    for one in (setup, control):
        one.optimizer.zero_grad()
        torch.nn.functional.mse_loss(one.model(one.batch["x"]), one.batch["t"]).backward()
        one.optimizer.step()
    assert_same_bits(setup.values(), control.values())
    again = Setup(setup.model, setup.optimizer, compiled_again(setup), setup.batch)
    again.train()
    assert again.optimizer.state[next(again.model.parameters())]["step"] == 6


def compiled_again(setup: Setup) -> aicf_mlir.CompiledTrainStep:
    device = str(next(setup.model.parameters()).device)
    return aicf_mlir.compile_train_step(setup.model, setup.optimizer, example=setup.batch, device=device)


CALLS: dict[str, Callable[[Setup, Path], object]] = {
    "train_step": lambda s, path: s.step.train_step(s.batch),
    "warmup": lambda s, path: s.step.warmup(s.batch),
    "capture": lambda s, path: s.step.capture(s.batch),
    "replay": lambda s, path: s.step.replay(),
    "reset": lambda s, path: s.step.reset(),
    "snapshot": lambda s, path: s.step.snapshot(),
    "save": lambda s, path: s.step.save(path / "a"),
    "meta": lambda s, path: s.step.meta["lr"],
    "ir": lambda s, path: s.step.ir("plan"),
    "stats": lambda s, path: s.step.stats(),
    "gradients": lambda s, path: s.step.gradients,
    "inputs": lambda s, path: s.step.inputs,
    "scalars": lambda s, path: s.step.scalars(),
    "memory_report": lambda s, path: s.step.memory_report(),
    "executed_kernels": lambda s, path: s.step.executed_kernels(),
    "device": lambda s, path: s.step.device,
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_step_says_so(call: str, tmp_path: Path) -> None:
    setup = trained(ADAM, "cpu")
    setup.step.close()
    with pytest.raises(StateError, match="step: the step is closed; compile the model again"):
        CALLS[call](setup, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_loading_into_a_closed_step_is_refused(tmp_path: Path) -> None:
    setup = trained(ADAM, "cpu")
    setup.step.save(tmp_path / "a")
    saved = setup.step.snapshot()
    setup.step.close()
    before = setup.values()
    with pytest.raises(StateError, match="closed"):
        setup.step.load(tmp_path / "a")
    with pytest.raises(StateError, match="closed"):
        setup.step.restore(saved)
    assert_same_bits(setup.values(), before)


def test_load_state_dict_after_close_is_torchs_own() -> None:
    setup = trained(ADAM, "cpu")
    state = setup.optimizer.state_dict()
    setup.step.close()
    setup.optimizer.load_state_dict(state)
    fresh = compiled(ADAM, model=setup.model)
    fresh.optimizer.load_state_dict(state)
    assert_same_bits(setup.values(), fresh.values())


def test_a_model_of_aicf_nn_names_the_closed_step() -> None:
    model = aicf_mlir.nn.Sequential(aicf_mlir.nn.Linear(8, 8))
    optimizer = torch.optim.Adam(model.parameters())
    model.compile(optimizer=optimizer, B=5, D=8, device="cpu")
    model.compiled_step.close()
    with pytest.raises(StateError, match="closed"):
        model.train_step(regression(5))


def test_a_dropped_step_frees_its_memory_without_the_collector(device: str) -> None:
    with no_collector():
        before = live(device)
        setup = trained(ADAM, device)
        setup.step.snapshot()
        del setup
        assert live(device) == before


def test_dropping_only_the_step_frees_what_is_not_the_models(device: str) -> None:
    with no_collector():
        before = live(device)
        setup = trained(ADAM, device)
        model, optimizer, values = setup.model, setup.optimizer, setup.values()
        arenas = setup.step.memory_report().arenas
        del setup
        kept = sum(size for role, size in arenas.items() if role in ("param", "state", "buffer"))
        assert live(device) - before <= kept
        parameters = {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}
        assert_same_bits(parameters, {name: values[name] for name in parameters})
        optimizer.load_state_dict(optimizer.state_dict())


def test_compiling_again_lets_go_of_the_first_step(device: str) -> None:
    with no_collector():
        model = mlp(8, 17, 8).to(device)
        optimizer = torch.optim.Adam(model.parameters())
        batch = {name: t.to(device) for name, t in regression(5).items()}
        sizes: list[int] = []
        step: aicf_mlir.CompiledTrainStep | None = None
        for _ in range(3):
            step = aicf_mlir.compile_train_step(model, optimizer, example=batch, device=device)
            step.train_step(batch)
            sizes.append(live(device))
        assert sizes[1] == sizes[2]

"""Bad input to the API: one clear error that says what to do next, and training goes on undisturbed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import children
import pytest
import torch
from models import OptimizerConfig, Setup, compiled, mlp, mse, regression, to_device
from oracle import assert_same_bits
from torch import nn
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.errors import AicfError, BindError, LoweringError, StateError
from aicf_mlir.passes.decompose import DecomposePass

ADAM = OptimizerConfig(torch.optim.Adam, {"lr": 1e-2})
MOMENTUM = OptimizerConfig(torch.optim.SGD, {"lr": 0.05, "momentum": 0.9})


@dataclass(frozen=True)
class Mistake:
    """A wrong call, the error it must raise, and what the message must say."""

    name: str
    call: Callable[[Setup], Any]
    error: type[AicfError]
    message: str
    undo: Callable[[Setup], Any] = lambda _: None


def _batch(setup: Setup, **changed: Any) -> dict[str, Any]:
    return {**setup.batch, **changed}


BAD_BATCHES: tuple[Mistake, ...] = (
    Mistake(
        "batch size",
        lambda s: s.step.train_step(to_device(regression(4), str(s.step.device))),
        BindError,
        r"'x': expected float32\[5, 8\] on \w+(:0)?( or cpu)?, got float32\[4, 8\].*drop_last=True",
    ),
    Mistake(
        "rank",
        lambda s: s.step.train_step(_batch(s, x=s.batch["x"].flatten())),
        BindError,
        r"expected float32\[5, 8\].*got float32\[40\]",
    ),
    Mistake(
        "dtype",
        lambda s: s.step.train_step(_batch(s, t=s.batch["t"].double())),
        BindError,
        r"'t': expected float32\[5, 8\].*got float64\[5, 8\]",
    ),
    Mistake(
        "device",
        lambda s: s.step.train_step(_batch(s, x=s.batch["x"].to("meta"))),
        BindError,
        r"'x': expected .* on (cpu|cuda:0 or cpu), got .* on meta",
    ),
    Mistake(
        "missing key",
        lambda s: s.step.train_step({"x": s.batch["x"]}),
        BindError,
        r"lacks 't': expected \['t', 'x'\], got \['x'\]",
    ),
    Mistake(
        "unknown key",
        lambda s: s.step.train_step(_batch(s, y=s.batch["x"])),
        BindError,
        r"the batch has 'y' besides what was compiled: expected \['t', 'x'\]",
    ),
    Mistake(
        "wrong key",
        lambda s: s.step.train_step({"X": s.batch["x"], "t": s.batch["t"]}),
        BindError,
        r"lacks 'x'",
    ),
    Mistake(
        "not a tensor",
        lambda s: s.step.train_step(_batch(s, x=[1.0])),
        BindError,
        r"'x': expected a torch\.Tensor, got list",
    ),
    Mistake(
        "tuple",
        lambda s: s.step.train_step((s.batch["x"], s.batch["t"])),
        BindError,
        r"a dict of tensors, got tuple",
    ),
    Mistake("tensor", lambda s: s.step.train_step(s.batch["x"]), BindError, r"a dict of tensors, got Tensor"),
    Mistake("None", lambda s: s.step.train_step(None), BindError, r"a dict of tensors, got NoneType"),
    Mistake(
        "warmup with a bad batch",
        lambda s: s.step.warmup(_batch(s, x=s.batch["x"][:1])),
        BindError,
        r"expected float32\[5, 8\]",
    ),
    Mistake(
        "capture with a bad batch",
        lambda s: s.step.capture(_batch(s, x=s.batch["x"][:1])),
        BindError,
        r"expected float32\[5, 8\]",
    ),
)

BAD_CALLS: tuple[Mistake, ...] = (
    Mistake(
        "replay before capture",
        lambda s: s.step.replay(),
        StateError,
        r"replay\(\) before capture\(\).*call capture\(batch\)",
    ),
    Mistake(
        "warmup of no runs", lambda s: s.step.warmup(s.batch, 0), StateError, r"at least one run, got runs=0"
    ),
    Mistake(
        "restore of nothing", lambda s: s.step.restore(None), BindError, r"a snapshot that this step made"
    ),
    Mistake(
        "restore of a state_dict",
        lambda s: s.step.restore(s.model.state_dict()),
        BindError,
        r"a snapshot that this step made",
    ),
    Mistake(
        "restore of another step's snapshot",
        lambda s: s.step.restore(compiled(ADAM, str(s.step.device)).step.snapshot()),
        BindError,
        r"a snapshot that this step made",
    ),
    Mistake("unknown stage", lambda s: s.step.ir("ptx"), BindError, r"no stage 'ptx'; there are nn, .*plan"),
    Mistake(
        "meta: nan",
        lambda s: s.step.meta.__setitem__("bc1_inv", float("nan")),
        BindError,
        r"'bc1_inv': nan is not a value; assign None",
    ),
    Mistake(
        "meta: release of lr", lambda s: s.step.meta.release("lr"), BindError, r"'lr' cannot be released"
    ),
    Mistake("meta: delete", lambda s: s.step.meta.__delitem__("lr"), BindError, r"cannot be deleted"),
    Mistake(
        "a parameter frozen",
        lambda s: (s.model[0].weight.requires_grad_(False), s.train()),
        BindError,
        r"'0\.weight' had requires_grad=True when it was compiled; set it back, or call recompile\(\)",
        undo=lambda s: s.model[0].weight.requires_grad_(True),
    ),
    Mistake(
        "amsgrad switched on",
        lambda s: (s.optimizer.param_groups[0].update(amsgrad=True), s.train()),
        StateError,
        r"param group 0: .*amsgrad.*call recompile\(\)",
        undo=lambda s: s.optimizer.param_groups[0].update(amsgrad=False),
    ),
    Mistake(
        "maximize switched on",
        lambda s: (s.optimizer.param_groups[0].update(maximize=True), s.train()),
        StateError,
        r"maximize or .* was switched on or off after compilation.*call recompile\(\)",
        undo=lambda s: s.optimizer.param_groups[0].update(maximize=False),
    ),
    Mistake(
        "decoupled_weight_decay switched on",
        lambda s: (s.optimizer.param_groups[0].update(decoupled_weight_decay=True), s.train()),
        StateError,
        r"decoupled_weight_decay was switched on or off after compilation.*call recompile\(\)",
        undo=lambda s: s.optimizer.param_groups[0].update(decoupled_weight_decay=False),
    ),
    Mistake(
        "a param group added",
        lambda s: (s.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]}), s.train()),
        StateError,
        r"2 param groups now, 1 were compiled; call recompile\(\)",
        undo=lambda s: s.optimizer.param_groups.pop(),
    ),
)


@pytest.mark.parametrize("mistake", [*BAD_BATCHES, *BAD_CALLS], ids=lambda m: m.name)
def test_a_mistake_is_refused_and_nothing_is_lost(mistake: Mistake, device: str) -> None:
    setup, control = compiled(ADAM, device), compiled(ADAM, device)
    setup.train(2)
    control.train(2)
    with pytest.raises(mistake.error, match=mistake.message) as raised:
        mistake.call(setup)
    assert "\n" not in str(raised.value), "one line says it"
    assert raised.value.__cause__ is None, "one error, not a chain"
    mistake.undo(setup)
    setup.train(2)
    control.train(2)
    setup.step.capture(setup.batch)
    control.step.capture(control.batch)
    assert_same_bits(
        {"loss": setup.step.replay(2), **setup.values()}, {"loss": control.step.replay(2), **control.values()}
    )


@pytest.mark.parametrize("n", [0, -1, 1.0, True, "3", None])
def test_replay_of_a_bad_count(n: Any, device: str) -> None:
    setup, control = compiled(ADAM, device), compiled(ADAM, device)
    for each in (setup, control):
        each.train()
        each.step.capture(each.batch)
    with pytest.raises(BindError, match=r"replay\(n\) needs a positive integer, got"):
        setup.step.replay(n)
    setup.step.replay(2)
    control.step.replay(2)
    assert_same_bits(setup.values(), control.values())


@pytest.mark.parametrize(
    "mistake", [m for m in BAD_BATCHES if "with" not in m.name and m.name != "None"], ids=lambda m: m.name
)
def test_replay_with_bad_inputs(mistake: Mistake, device: str) -> None:
    """A refused batch leaves all captured inputs as they were, those before the bad one included."""
    setup, control = compiled(ADAM, device), compiled(ADAM, device)
    for each in (setup, control):
        each.train()
        each.step.capture(each.batch)
    setup.step.train_step = lambda batch: setup.step.replay(inputs=batch)
    with pytest.raises(mistake.error, match=mistake.message) as raised:
        mistake.call(setup)
    assert "\n" not in str(raised.value)
    setup.step.replay(2)
    control.step.replay(2)
    assert_same_bits(setup.values(), control.values())


def test_capture_before_warmup(device: str) -> None:
    setup = compiled(ADAM, device)
    with pytest.raises(
        StateError,
        match=r"capture\(\) before a warm-up .*'created'.*; call train_step\(batch\) or warmup\(",
    ):
        setup.step.capture(setup.batch)
    assert setup.step.state == "created"
    with pytest.raises(
        StateError,
        match=r"replay\(\) before capture\(\) .*'created'.*; call train_step\(batch\), then capture\(batch\)",
    ):
        setup.step.replay()
    setup.step.warmup(setup.batch)
    setup.step.capture(setup.batch)
    setup.step.replay()


def test_calls_after_reset(device: str) -> None:
    setup = compiled(ADAM, device)
    setup.train()
    setup.step.capture(setup.batch)
    setup.step.reset()
    with pytest.raises(StateError, match=r"replay\(\) before capture\(\) \(state 'reset'\)"):
        setup.step.replay()
    with pytest.raises(StateError, match=r"capture\(\) before a warm-up \(state 'reset'\)"):
        setup.step.capture(setup.batch)
    setup.train()
    assert setup.step.state == "warmed"


def as_bfloat16(tensor: torch.Tensor) -> torch.Tensor:
    """The first half of its memory, with the same sizes and strides."""
    return tensor.view(torch.bfloat16).as_strided(tensor.shape, tensor.stride())


MOVES: dict[str, Callable[[nn.Module], Any]] = {
    ".data = a copy": lambda m: setattr(m[0].weight, "data", m[0].weight.detach().clone()),
    ".data = the same memory as another dtype": lambda m: setattr(
        m[0].weight, "data", as_bfloat16(m[0].weight.detach())
    ),
    ".to(another dtype)": lambda m: m.double(),
    "load_state_dict(assign=True)": lambda m: m.load_state_dict(
        {n: t.clone() for n, t in m.state_dict().items()}, assign=True
    ),
}


@pytest.mark.parametrize("move", MOVES)
def test_moved_parameters_are_refused(move: str, device: str) -> None:
    setup, control = compiled(ADAM, device), compiled(ADAM, device)
    for each in (setup, control):
        each.train()
        each.step.capture(each.batch)
    owners = {name: setup.model.get_parameter(name) for name, _ in setup.model.named_parameters()}
    storage = {name: parameter.data for name, parameter in owners.items()}
    MOVES[move](setup.model)
    for call in (setup.train, setup.step.replay, setup.step.snapshot):
        with pytest.raises(
            BindError,
            match=r"parameter '0\.weight' was moved after compilation.*in place.*or call recompile\(\)",
        ):
            call()

    for name, parameter in owners.items():  # put everything back: nothing was lost
        parameter.data = storage[name]
        module, _, leaf = name.rpartition(".")
        setattr(setup.model.get_submodule(module), leaf, parameter)
    setup.step.replay(2)
    control.step.replay(2)
    assert_same_bits(setup.values(), control.values())


def test_momentum_switched_off(device: str) -> None:
    setup, control = compiled(MOMENTUM, device), compiled(MOMENTUM, device)
    setup.train()
    control.train()
    with pytest.raises(StateError, match=r"momentum = 0\.0 would change what was compiled"):
        setup.step.meta["momentum"] = 0.0
    assert setup.optimizer.param_groups[0]["momentum"] == 0.9
    setup.train()
    control.train()
    assert_same_bits(setup.values(), control.values())


def test_unknown_meta_name(device: str) -> None:
    setup = compiled(ADAM, device)
    with pytest.raises(KeyError, match=r"no host scalar 'learning_rate'; this step has lr, beta1"):
        setup.step.meta["learning_rate"] = 1.0
    with pytest.raises(KeyError, match=r"no host scalar 'momentum'"):
        setup.step.meta["momentum"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_refused() -> None:
    """The child must say so at once rather than hang; the parent goes on."""
    setup, control = compiled(ADAM), compiled(ADAM)
    setup.train()
    control.train()
    message = children.fork(lambda: f"ran {setup.train()}")
    assert message.startswith("StateError: ") and "fork" in message, message
    setup.train()
    control.train()
    assert_same_bits(setup.values(), control.values())


def test_an_error_between_the_groups_of_a_step_names_the_group() -> None:
    model = mlp(8, 17, 8)
    first, *rest = model.parameters()
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": rest, "momentum": 0.9}], lr=0.1)
    setup = compiled(lambda _: optimizer, model=model, loss_fn=mse)
    setup.train()
    optimizer.param_groups[1]["nesterov"] = True
    with pytest.raises(StateError, match=r"param group 1: .*nesterov"):
        setup.train()


def test_a_pass_that_breaks_the_step_is_one_short_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: DecomposePass, __: Any, module: ModuleOp) -> None:
        returned = next(op for op in module.walk() if isinstance(op, func.ReturnOp))
        made = returned.operands[0].owner
        assert isinstance(made, Operation)
        made.detach()
        Rewriter.insert_op(made, InsertPoint.after(returned))

    monkeypatch.setattr(DecomposePass, "apply", broken)
    said = "found after pass 'decompose': a fault of AICF; nothing was changed"
    with pytest.raises(LoweringError, match=said) as caught:
        compiled(ADAM)
    assert len(str(caught.value)) < 400

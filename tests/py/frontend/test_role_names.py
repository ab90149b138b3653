"""Roles have namespaces of their own: whatever the user calls a tensor, it keeps its name and trains as in torch."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from xdsl.dialects.func import FuncOp

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import trace
from aicf_mlir.ir.signature import argument_labels
from aicf_mlir.passes.bufferize.slots import Symbols
from aicf_mlir.step.compile import compile_train_step
from aicf_mlir.tools import aicf_check, aicf_opt, aicf_trace

ENTRIES = (
    "x",
    "t",
    "eps",
    "lr",
    "step",
    "beta1",
    "weight",
    "bias",
    "loss",
    "param",
    "step.1",
    "weight.exp_avg",
)
PARAMETERS = ("lr", "loss", "step", "eps", "x", "weight", "bias", "meta")
BUFFERS = ("t", "beta1", "lr_1", "state", "momentum")
OPTIMIZERS = {
    "adam": lambda groups: torch.optim.Adam(groups, lr=1e-2, weight_decay=0.1),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1e-2, momentum=0.9),
}


class Named(nn.Module):
    """A layer of parameters and buffers whose names other roles have too; and two lists of them, as `step.1`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        for name in PARAMETERS:
            self.register_parameter(name, nn.Parameter(torch.randn(4)))
        for name in BUFFERS:
            self.register_buffer(name, torch.randn(4))
        self.constant = nn.ParameterList(nn.Parameter(torch.randn(4)) for _ in range(2))
        self.captured = nn.ParameterList(nn.Parameter(torch.randn(4), requires_grad=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in (*PARAMETERS, *BUFFERS):
            x = torch.tanh(x * getattr(self, name))
        return x * self.constant[1] + self.captured[0] + self.captured[1] * self.constant[0]


def loss_fn(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    x = sum((batch[name] for name in ENTRIES), torch.zeros(4))
    mask = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return nn.functional.mse_loss(model(x * mask), batch["t"])


def batches(count: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [{name: torch.randn(3, 4, generator=generator) for name in ENTRIES} for _ in range(count)]


def groups_of(model: nn.Module) -> list[dict[str, list[nn.Parameter]]]:
    parameters = list(model.parameters())
    return [{"params": parameters[:3]}, {"params": parameters[3:]}]


def names_by_role(model: Named) -> dict[str, list[str]]:
    traced = trace(model, loss_fn, batches(1)[0], optimizer=OPTIMIZERS["adam"](model.parameters()))
    function = next(op for op in traced.module.ops if isinstance(op, FuncOp))
    found: dict[str, list[str]] = {}
    for label in argument_labels(function):
        found.setdefault(label.role, []).append(label.name)
    return found


def test_names_come_out_unchanged() -> None:
    model = Named()
    found = names_by_role(model)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert found["input"] == list(ENTRIES)
    assert found["param"] == trained
    assert found["buffer"][:-1] == ["captured.0", "captured.1", *BUFFERS]
    assert found["buffer"][-1] not in (
        *trained,
        *found["buffer"][:-1],
    )  # the mask, which has no name of its own


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_trains_as_torch_does(kind: str) -> None:
    model = Named()
    twin = copy.deepcopy(model)
    optimizer, theirs = (OPTIMIZERS[kind](groups_of(m)) for m in (model, twin))
    given = batches(4)
    step = compile_train_step(
        model, optimizer, loss_fn=loss_fn, example=given[0], device="cpu", keep_gradients=True
    )
    for i, batch in enumerate(given):
        for o in (optimizer, theirs):
            o.param_groups[0]["lr"] = 0.02 + i / 100
        ours = step.train_step(batch)
        theirs.zero_grad()
        loss = loss_fn(twin, batch)
        loss.backward()
        torch.testing.assert_close(ours, loss)
        for name, parameter in twin.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(step.gradients[name], parameter.grad)
        theirs.step()
    for ours, parameter in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter)
    assert set(step.gradients) == {name for name, p in twin.named_parameters() if p.requires_grad}
    assert step.meta["lr"] == optimizer.param_groups[0]["lr"]
    assert step.meta["lr.1"] == 1e-2


@pytest.mark.parametrize("name", ["x", "lr", "input", "", "a b", "a.b", 'q"\\', "é\n", "v0", "k0", "\0"])
def test_any_name_of_a_batch_entry(name: str) -> None:
    model = nn.Linear(4, 4)
    batch = {name: torch.randn(3, 4)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return model(batch[name]).square().mean()

    expected = loss(model, batch).detach()
    if not name:
        with pytest.raises(TraceError, match="the names of batch entries must be strings that are not empty"):
            compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
        return
    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
    torch.testing.assert_close(step.train_step(batch), expected)


def test_a_name_that_is_no_text_is_refused() -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(TraceError, match=r"batch entry '\\ud800' has a name that is no text"):
        trace(model, loss_fn, {"\ud800": torch.randn(3, 4)})


class LossWithParameter(nn.Module):
    """A loss that is trained too; its parameter has the path of one of the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return (model(batch["x"]) * self.scale - batch["t"]).square().mean()


class WithLossInside(nn.Module):
    """A model whose own layer is called `loss_fn`."""

    def __init__(self) -> None:
        super().__init__()
        self.loss_fn = nn.Module()
        self.loss_fn.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.get_parameter("loss_fn.scale")


def test_names_of_a_loss_module_give_way_to_those_of_the_model() -> None:
    model, loss = WithLossInside(), LossWithParameter()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
    batch = {"x": torch.randn(3, 4), "t": torch.randn(3, 4)}
    traced = trace(model, loss, batch, optimizer=optimizer)
    assert list(traced.parameters) == ["loss_fn.scale", "loss_fn.scale'"]
    assert traced.parameters["loss_fn.scale"] is model.loss_fn.scale


def test_symbols_of_slots_stay_unique_and_readable() -> None:
    symbols = Symbols(["input"])
    asked = [
        ("lr", "input"),
        ("lr", "host_scalar"),
        ("lr", "host_scalar"),
        ("input", "input"),
        ("a b", "state"),
    ]
    assert [symbols.named(*name) for name in asked] == [
        "lr",
        "host_scalar.lr",
        "host_scalar.lr_2",
        "input.input",
        "a_b",
    ]


USER = """\
import sys
sys.path.insert(0, {folder!r})
from test_role_names import *

def named():
    model = Named()
    return {{"model": model, "optimizer": OPTIMIZERS["adam"](groups_of(model)), "batch": batches(1)[0], "loss_fn": loss_fn}}

def loss_module():
    model, loss = WithLossInside(), LossWithParameter()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
    batch = {{"x": torch.randn(3, 4), "t": torch.randn(3, 4)}}
    return {{"model": model, "optimizer": optimizer, "batch": batch, "loss_fn": loss}}
"""


@pytest.fixture
def user_file(tmp_path: Path) -> str:
    path = tmp_path / "user_roles.py"
    path.write_text(USER.format(folder=str(Path(__file__).parent)))
    return str(path)


@pytest.mark.parametrize(("function", "rows"), [("named", 59), ("loss_module", 5)])
def test_aicf_check(user_file: str, function: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert aicf_check.main([f"{user_file}:{function}", "--device", "cpu"]) == 0
    assert f"PASS: {rows} quantities agree with torch" in capsys.readouterr().out


@pytest.mark.parametrize("function", ["named", "loss_module"])
def test_every_stage_round_trips(
    user_file: str, function: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traced, plan = tmp_path / "traced.mlir", tmp_path / "plan.mlir"
    assert aicf_trace.main([f"{user_file}:{function}", "-o", str(traced)]) == 0
    for stage in ("nn", "step", "kernel", "plan"):
        assert aicf_opt.main([str(traced), "--stage", stage, "-o", str(plan)]) == 0
        assert aicf_opt.main([str(plan)]) == 0
        assert capsys.readouterr().out == plan.read_text()

"""Steps of a few small launches on a GPU: updates in the products of their gradients, and several launches as one.

What the plans compute is seen without a GPU, by the meaning of their launches in the plan's own memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from models import Batch, compiled, mlp, mse, regression
from oracle import assert_same_bits
from small_steps import apart, launches, trained
from torch import nn

from aicf_mlir import trace
from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.stages import make_context, run_stages

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
TARGET = "sm_90+cublaslt"

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "Adam": partial(torch.optim.Adam, lr=1e-2, weight_decay=0.1),
    "AdamW upwards": partial(torch.optim.AdamW, lr=1e-2, weight_decay=0.1, maximize=True),
    "Adam with a maximum": partial(torch.optim.Adam, lr=1e-2, weight_decay=0.1, amsgrad=True),
    "SGD": partial(torch.optim.SGD, lr=1e-2, weight_decay=0.1),
    "SGD ahead": partial(torch.optim.SGD, lr=1e-2, weight_decay=0.1, momentum=0.9, nesterov=True),
}


def planned(
    model: nn.Module,
    batch: Batch,
    optimizer: MakeOptimizer = OPTIMIZERS["Adam"],
    precision: str | None = None,
    target: str = TARGET,
    **options: str,
) -> ProgramOp:
    """The plan of a step, which no GPU is needed for."""
    given = Precision(precision, torch.device("cpu"))
    module = trace(model, mse, batch, optimizer=optimizer(model.parameters()), precision=given).module
    run_stages(module, make_context(), target=target, options=options)
    return find_program(module)


def tensors_of(model: nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **batch}


WEIGHT = "gemm_map(12 -> 3, trans_a)"


def test_a_step_is_a_chain_of_products() -> None:
    """Two layers: forward twice with the count of steps beside, backward with the loss, and all that nothing waits for."""
    program = planned(mlp(256, 256, 256), regression(64, 256))
    forward, loss, backward, updates = launches(program)
    assert forward == "map(8 -> 10), gemm_map(3 -> 1, trans_b)"
    assert loss == "gemm_map"
    assert backward == f"rowwise(2 -> 1, reduced 2), gemm_map(3 -> 1), {WEIGHT}"
    assert updates == f"{WEIGHT}, {WEIGHT}, {WEIGHT}"


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_two_launches_a_layer(layers: int) -> None:
    found = launches(planned(mlp(*[64] * (layers + 1)), regression(16, 64)))
    assert len(found) == 2 * layers


@pytest.mark.parametrize("precision", [None, "bf16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("widths", [(32, 48, 16), (33, 17, 5)])
def test_computes_what_separate_launches_do(
    name: str, precision: str | None, widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient of bf16 is rounded to it, whoever computes it: or parameters would part in their third digit."""
    model, batch = mlp(*widths), regression(12, widths[0], widths[-1])
    program = planned(model, batch, OPTIMIZERS[name], precision)
    assert any("of_product" in str(launch.bodies) for launch in program.launches)
    together = trained(program, tensors_of(model, batch))
    apart(monkeypatch)
    separate = planned(model, batch, OPTIMIZERS[name], precision)
    assert len(separate.launches) > len(program.launches)
    expected = trained(separate, tensors_of(model, batch))
    assert together.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(together[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


def test_trains_as_torch() -> None:
    model, batch = mlp(24, 40, 24), regression(20, 24)
    optimizer = OPTIMIZERS["Adam"]
    found = trained(planned(model, batch, optimizer), tensors_of(model, batch), steps=5)
    ours, loss = optimizer(model.parameters()), torch.zeros(())
    for _ in range(5):
        ours.zero_grad()
        loss = mse(model, batch)
        loss.backward()
        ours.step()
    assert abs(found["output loss"] - loss.item()) < 1e-5
    for name, value in model.named_parameters():
        np.testing.assert_allclose(found[f"param {name}"], value.detach().numpy(), rtol=1e-4, atol=1e-5)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.norm = nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.fc(x))


def test_weights_of_a_norm_are_updated_as_biases_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = Normed(), regression(12, 32)
    program = planned(model, batch)
    first, middle, last = launches(program)
    assert (first, middle) == ("map(8 -> 10), gemm_map(3 -> 1, trans_b)", "rowwise")
    assert last == f"rowwise(2 -> 1, reduced 2), {WEIGHT}, {WEIGHT}, {WEIGHT}, {WEIGHT}"
    apart(monkeypatch)
    expected = trained(planned(model, batch), tensors_of(model, batch))
    for key, value in trained(program, tensors_of(model, batch)).items():
        np.testing.assert_allclose(value, expected[key], rtol=1e-4, atol=1e-5, err_msg=key)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.scale = nn.Linear(32, 32), nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * self.scale


SEPARATE: dict[str, Callable[[], ProgramOp]] = {
    "large weights": lambda: planned(mlp(512, 512, 512), regression(64, 512)),
    "a large weight beside small ones": lambda: planned(mlp(32, 64, 4096), regression(16, 32, 4096)),
    "many rows": lambda: planned(mlp(64, 64), regression(4096, 64)),
    "kept gradients": lambda: planned(mlp(32, 32), regression(16, 32), **{"apply-optimizer": "keep-grads"}),
    "a check that may fail": lambda: planned(mlp(32, 32), regression(16, 32), **{"check-finite": ""}),
    "f64": lambda: planned(mlp(32, 32).double(), regression(16, 32, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", SEPARATE)
def test_keeps_updates_launches_of_their_own(name: str) -> None:
    program = SEPARATE[name]()
    assert not any("of_product" in str(launch.bodies) for launch in program.launches)
    assert any(launch.op.data == "adam_step" for launch in program.launches)
    assert not any(launch.op.data == "horizontal" for launch in program.launches)


def test_the_update_of_a_single_number_stays_a_launch_of_its_own() -> None:
    first, middle, last = planned(Scaled(), regression(16, 32)).launches
    assert [launch.op.data for launch in (first, middle, last)] == ["horizontal", "horizontal", "adam_step"]
    assert "of_product" in str(middle.bodies)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [None, "bf16", "tf32"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("widths", [(256, 256, 256), (33, 17, 5), (40, 128, 64, 8)])
def test_on_a_gpu(
    name: str, precision: str | None, widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near to separate launches, and the same bits eagerly and replayed."""

    def made() -> Any:
        model = mlp(*widths).cuda()
        batch = {key: value.cuda() for key, value in regression(64, widths[0], widths[-1]).items()}
        return compiled(
            lambda m: OPTIMIZERS[name](m.parameters()),
            model=model,
            batch=batch,
            loss_fn=mse,
            device="cuda",
            precision=precision,
        )

    eager, replayed = made(), made()
    assert "of_product" in str(eager.step.ir("plan"))
    eager.train(6)
    replayed.train(1)
    replayed.step.capture(replayed.batch)
    replayed.step.replay(5)
    assert_same_bits(eager.values(), replayed.values())
    apart(monkeypatch)
    separate = made()
    assert "of_product" not in str(separate.step.ir("plan"))
    separate.train(6)
    tolerance = 1e-4 if precision is None else 2e-2
    for key, value in separate.values().items():
        difference = (eager.values()[key] - value).double().norm()
        assert difference <= tolerance * (value.double().norm() + 1e-3), key

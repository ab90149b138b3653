"""A GradScaler in a loop body: the live scaler, the state of the optimizers and the parameters are torch's after each step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from oracle import same_bits
from torch import nn
from written_optimizers import RIGHT

from aicf_mlir import GuardError, TraceError, compile_step

OVERFLOWS = (0, 3, 4)
STEPS = 6


class Scaled:
    """Two networks under one scaler; the first overflows with a batch of `factor` infinity."""

    def __init__(self, device: str, kind: Any = torch.optim.Adam):
        torch.manual_seed(0)
        with torch.device(device):
            self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)
        self.one = kind(self.first.parameters())
        self.two = torch.optim.SGD(self.second.parameters(), lr=0.1, momentum=0.9)
        self.scaler = torch.amp.GradScaler(device, init_scale=2.0**8, growth_interval=2)

    def body(self, batch: Any) -> Any:
        self.one.zero_grad()
        self.two.zero_grad()
        start = F.cross_entropy(self.first(batch["x"]) * batch["factor"], batch["t"])
        loss = F.cross_entropy(self.second(batch["x"]), batch["t"])
        self.scaler.scale(start).backward()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.one)
        nn.utils.clip_grad_norm_(self.first.parameters(), 0.5)
        self.scaler.step(self.one)
        self.scaler.step(self.two)
        scale = self.scaler.get_scale()
        self.scaler.update()
        return loss, scale, self.scaler.get_scale()

    def tensors(self) -> list[torch.Tensor]:
        return [
            t.detach().clone()
            for t in (
                *self.first.parameters(),
                *self.second.parameters(),
                *(value for _, value in sorted(self.states().items())),
            )
        ]

    def states(self) -> dict[str, torch.Tensor]:
        """The state of optimizers and scaler by name."""
        states = {
            f"{kind}.{key}.{name}": torch.as_tensor(value)
            for kind, each in (("one", self.one), ("two", self.two))
            for key, state in each.state_dict()["state"].items()
            for name, value in state.items()
            if value is not None
        }
        return states | {key: torch.as_tensor(value) for key, value in self.scaler.state_dict().items()}


def batch_of(device: str, number: int, overflows: bool = False) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(number)
    batch = {
        "x": torch.randn(5, 4, generator=draw),
        "t": torch.randint(3, (5,), generator=draw),
        "factor": torch.tensor([math.inf if overflows else 1.0]),
    }
    return {name: tensor.to(device) for name, tensor in batch.items()}


def assert_same(ours: Scaled, theirs: Scaled) -> None:
    assert ours.states().keys() == theirs.states().keys()
    for got, wanted in zip(ours.tensors(), theirs.tensors(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6, check_device=False, check_dtype=False)
    assert ours.scaler.state_dict() == theirs.scaler.state_dict()


@pytest.mark.parametrize("kind", [torch.optim.Adam, RIGHT["plain-adam-decay"]], ids=["described", "written"])
def test_each_step_leaves_what_torch_leaves(kind: Any, device: str) -> None:
    ours, theirs = Scaled(device, kind), Scaled(device, kind)
    step = compile_step(ours.body, example=batch_of(device, 0), device=device)
    for number in range(STEPS):
        batch = batch_of(device, number, number in OVERFLOWS)
        got, wanted = step(batch), theirs.body(batch)
        assert got[1:] == wanted[1:]
        assert_same(ours, theirs)
    if kind is torch.optim.Adam:
        assert step.check(batch_of(device, 0)).equal


def test_the_scaler_is_alive_between_steps(device: str, tmp_path: Path) -> None:
    ours, theirs = Scaled(device), Scaled(device)
    step = compile_step(ours.body, example=batch_of(device, 0), device=device)
    state = {**theirs.scaler.state_dict(), "scale": 32.0, "_growth_tracker": 1}
    changes: dict[int, Any] = {
        2: lambda pair: pair.scaler.load_state_dict(state),
        4: lambda pair: pair.scaler.update(8.0),
        6: lambda pair: pair.body(batch_of(device, 99)),  # torch's own step, in between
    }
    for number in range(8):
        if (change := changes.get(number)) is not None:
            change(ours)
            change(theirs)
        step(batch_of(device, number, number == 5))
        theirs.body(batch_of(device, number, number == 5))
        assert_same(ours, theirs)
    snapshot, before = step.snapshot(), ours.tensors()
    step.save(tmp_path / "saved")
    for go_back in (lambda: step.restore(snapshot), lambda: step.load(tmp_path / "saved")):
        step(batch_of(device, 0, True))
        assert ours.scaler.get_scale() != theirs.scaler.get_scale()
        go_back()
        assert all(same_bits(a, b) for a, b in zip(ours.tensors(), before, strict=True))
    step.close()
    ours.body(batch_of(device, 1))
    theirs.body(batch_of(device, 1))
    assert_same(ours, theirs)


def test_replays_equal_calls_bit_for_bit(device: str) -> None:
    results: list[list[torch.Tensor]] = []
    for replayed in (False, True):
        pair = Scaled(device)
        step = compile_step(pair.body, example=batch_of(device, 0), device=device)
        step(batch_of(device, 0, True))
        if replayed:
            step.capture(batch_of(device, 1))
            step.replay(5)
            step.replay(inputs=batch_of(device, 2, True))
        else:
            for _ in range(5):
                step(batch_of(device, 1))
            step(batch_of(device, 2, True))
        results.append(pair.tensors())
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))


def test_another_scaler_or_another_setting_is_noticed() -> None:
    pair = Scaled("cpu")
    step = compile_step(pair.body, example=batch_of("cpu", 0), device="cpu")
    step(batch_of("cpu", 0))
    pair.scaler.set_growth_factor(4.0)
    with pytest.raises(GuardError, match=r"scaler\._growth_factor was 2\.0, now 4\.0"):
        step(batch_of("cpu", 1))
    pair.scaler.set_growth_factor(2.0)
    scaler, pair.scaler = pair.scaler, torch.amp.GradScaler("cpu", init_scale=4.0)
    with pytest.raises(GuardError, match="scaler"):
        step(batch_of("cpu", 1))
    step.recompile()
    step(batch_of("cpu", 1))
    assert (pair.scaler.get_scale(), scaler.get_scale()) == (4.0, 256.0)
    pair.scaler._per_optimizer_states[1]["stage"] = "stepped"  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(
        GuardError, match=r"begins between self\.scaler\.unscale_\(\) or self\.scaler\.step\(\)"
    ):
        step(batch_of("cpu", 2))


def without_update(pair: Scaled) -> None:
    pair.scaler.step(pair.one)


def updated_first(pair: Scaled) -> None:
    pair.scaler.update()


def unscaled_twice(pair: Scaled) -> None:
    pair.scaler.unscale_(pair.one)
    pair.scaler.unscale_(pair.one)


def stepped_twice(pair: Scaled) -> None:
    pair.scaler.step(pair.one)
    pair.scaler.step(pair.one)


def without_gradients(pair: Scaled) -> None:
    pair.scaler.step(pair.two)


def with_closure(pair: Scaled) -> None:
    pair.scaler.step(pair.one, closure=lambda: 0.0)


def other_verb(pair: Scaled) -> None:
    pair.scaler.state_dict()


def by_the_scale(pair: Scaled) -> None:
    if pair.scaler.get_scale() > 1:
        pair.scaler.step(pair.one)


REFUSED: dict[Any, str] = {
    without_update: r"ends before pair\.scaler\.update\(\).*call pair\.scaler\.update\(\) last",
    updated_first: r"calls pair\.scaler\.update\(\) before pair\.scaler\.step\(\)",
    unscaled_twice: r"calls pair\.scaler\.unscale_\(\) a second time since pair\.scaler\.update\(\)",
    stepped_twice: r"calls pair\.scaler\.step\(\) for an optimizer that it has stepped since",
    without_gradients: r"calls pair\.scaler\.step\(\) or pair\.scaler\.unscale_\(\) where no parameter has a gradient",
    with_closure: r"calls pair\.scaler\.step\(optimizer, …\) with a closure",
    other_verb: r"uses pair\.scaler\.state_dict.*a loop body calls pair\.scaler\.scale\(\)",
    by_the_scale: r"needs the value of a tensor at once",
}


@pytest.mark.parametrize("rest", REFUSED, ids=lambda rest: rest.__name__)
def test_what_torch_would_refuse_later_is_refused(rest: Any) -> None:
    pair = Scaled("cpu")

    def body(batch: Any) -> None:
        pair.one.zero_grad()
        pair.two.zero_grad()
        pair.scaler.scale(F.cross_entropy(pair.first(batch["x"]), batch["t"])).backward()
        rest(pair)

    before, kind = pair.tensors(), type(pair.scaler)
    with pytest.raises(TraceError, match=REFUSED[rest]):
        compile_step(body, example=batch_of("cpu", 0), device="cpu")
    assert type(pair.scaler) is kind
    assert all(same_bits(a, b) for a, b in zip(pair.tensors(), before, strict=True))

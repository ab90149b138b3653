"""Batch sizes that come unannounced: an epoch with a short last batch is torch's, few are kept, and failures change nothing."""

from __future__ import annotations

import copy
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from costs import Some
from models import mlp, mse, regression, to_device, values
from oracle import assert_same_bits
from torch import nn

from aicf_mlir import AicfError, BindError, GuardError, StateError, compile_eval_step, compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep

D = 6
MOMENTS = 16
"""At which a growing step is interrupted."""
Batch = dict[str, torch.Tensor]


def batch_of(size: int, device: str, seed: int = 0) -> Batch:
    return to_device(regression(size, D, seed=seed), device)


def made(
    device: str, most: Any = 1, sizes: Any = 8, **options: Any
) -> tuple[nn.Module, torch.optim.Optimizer, CompiledTrainStep]:
    model = mlp(D, 9, D).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = compile_train_step(model, optimizer, B=sizes, D=D, device=device, further_sizes=most, **options)
    return model, optimizer, step


def sizes_of(step: CompiledTrainStep) -> list[int]:
    return [len(plan.inputs["x"]) for plan in step._plans]  # pyright: ignore[reportPrivateUsage]


def test_an_epoch_with_a_short_last_batch_is_torchs(device: str) -> None:
    model, optimizer, step = made(device)
    twin = copy.deepcopy(model)
    theirs = torch.optim.Adam(twin.parameters(), lr=0.01)
    for number in range(9):
        batch = batch_of(8 if number % 3 < 2 else 5, device, number)
        theirs.zero_grad()
        expected = mse(twin, batch)
        expected.backward()
        theirs.step()
        torch.testing.assert_close(step.train_step(batch), expected.detach())
    for name, value in values(twin, theirs).items():
        torch.testing.assert_close(values(model, optimizer)[name], value)
    assert sizes_of(step) == [8, 5]


def test_it_trains_as_a_size_that_was_named(device: str) -> None:
    model, optimizer, step = made(device)
    other, its, named = made(device, 0, (8, 5))
    for size in (8, 5, 8, 5, 5):
        ours, expected = (each.train_step(batch_of(size, device)) for each in (step, named))
        assert_same_bits({"loss": ours}, {"loss": expected})
    assert_same_bits(values(model, optimizer), values(other, its))


def test_the_least_recently_used_makes_room(device: str) -> None:
    _, _, step = made(device, 2)
    kept: list[list[int]] = []
    for size in (8, 3, 4, 3, 5, 8, 6, 3):
        step.train_step(batch_of(size, device))
        kept.append(sizes_of(step))
    assert kept == [[8], [8, 3], [8, 3, 4], [8, 3, 4], [8, 3, 5], [8, 3, 5], [8, 6, 5], [8, 6, 3]]


def test_what_is_captured_stays_captured(device: str) -> None:
    model, optimizer, step = made(device, 1)
    eager_model, eager_optimizer, eager = made(device, 1)
    large, small, other = (batch_of(size, device) for size in (8, 5, 3))
    step.train_step(large)
    step.capture(large)
    step.train_step(small)
    step.replay(2, inputs=large)
    step.capture(small)
    step.replay(inputs=small)
    step.replay(inputs=large)
    step.train_step(other)  # the small one goes, and its graph
    with pytest.raises(StateError, match=r"not captured yet; call capture\(batch\)"):
        step.replay(inputs=small)
    assert sizes_of(step) == [8, 3], "a replay compiles nothing"
    step.replay(inputs=large)
    for batch in (large, small, large, large, small, large, other, large):
        eager.train_step(batch)
    assert_same_bits(values(model, optimizer), values(eager_model, eager_optimizer))


def test_certificate_snapshot_and_checkpoint(device: str, tmp_path: Path) -> None:
    model, optimizer, step = made(device, 1)
    small = batch_of(5, device)
    step.train_step(small)
    certificate = step.capture(small, verify="bitwise")
    assert certificate.equal, certificate
    snapshot, before = step.snapshot(), {k: v.clone() for k, v in values(model, optimizer).items()}
    step.save(tmp_path / "file")
    for put_back in (lambda: step.restore(snapshot), lambda: step.load(tmp_path / "file")):
        step.train_step(batch_of(3, device))
        put_back()
        assert_same_bits(values(model, optimizer), before)


def test_the_batch_that_was_loaded_last_is_the_one_of_the_new_plan(device: str) -> None:
    """Also where the plan of the batch before has made room, and the step did not come to run."""
    model, optimizer, step = made(device, 1)
    step.train_step(batch_of(5, device))
    step.warmup(batch_of(3, device, seed=4))
    step.capture()
    step.replay()
    other, its, plain = made(device, 1)
    plain.train_step(batch_of(5, device))
    plain.train_step(batch_of(3, device, seed=4))
    assert_same_bits(values(model, optimizer), values(other, its))


def test_recompiling_begins_with_the_sizes_that_were_named(device: str) -> None:
    model, optimizer, step = made(device, 1)
    other, its, plain = made(device, 1)
    for number, size in enumerate((8, 5, 3, 5, 8)):
        if number == 2:
            step.recompile()
            assert sizes_of(step) == [8]
        for each in (step, plain):
            each.train_step(batch_of(size, device))
    assert sizes_of(step) == [8, 5]
    assert_same_bits(values(model, optimizer), values(other, its))


def test_an_evaluation_step_grows_too(device: str) -> None:
    model, _, _ = made(device)
    step = compile_eval_step(model, B=8, D=D, device=device, further_sizes=1)
    for size in (8, 3, 5):
        batch = batch_of(size, device)
        torch.testing.assert_close(step.eval_step(batch), mse(model, batch).detach())


class Scaled(nn.Module):
    """Reads a number, and fails for small batches."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale, self.small = nn.Linear(D, D), 2.0, 3.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) == 2:
            raise ValueError("two rows are too few")
        return self.linear(x) * (self.scale if len(x) > 4 else self.small)


def scaled() -> tuple[Scaled, torch.optim.Optimizer, CompiledTrainStep]:
    torch.manual_seed(0)
    model = Scaled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, compile_train_step(model, optimizer, B=8, D=D, device="cpu", further_sizes=1)


def test_what_was_compiled_for_counts_for_all_sizes() -> None:
    model, _, step = scaled()
    step.train_step(batch_of(8, "cpu"))
    model.small = 4.0  # nobody has read it
    expected = mse(copy.deepcopy(model), batch_of(3, "cpu"))
    torch.testing.assert_close(step.train_step(batch_of(3, "cpu")), expected.detach())
    model.small = 5.0
    with pytest.raises(GuardError, match=r"model\.small was 4\.0, now 5\.0"):
        step.train_step(batch_of(8, "cpu"))
    model.small, model.scale = 4.0, 1.0
    with pytest.raises(GuardError, match=r"model\.scale was 2\.0, now 1\.0"):
        step.train_step(batch_of(5, "cpu"))
    assert sizes_of(step) == [8, 3]


def test_another_tensor_for_another_size_is_refused() -> None:
    model, weights = mlp(D, D), (torch.ones(D), torch.full((D,), 2.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(m: Any, b: Batch) -> torch.Tensor:
        return (m(b["x"]) * (weights[0] if len(b["x"]) > 4 else weights[1])).mean()

    def compiled(examples: list[Batch]) -> CompiledTrainStep:
        return compile_train_step(
            model, optimizer, loss_fn=loss, example=examples, device="cpu", further_sizes=1
        )

    with pytest.raises(
        BindError, match="is one tensor for one batch size and another for another; let the loss"
    ):
        compiled([{"x": torch.ones(8, D)}, {"x": torch.ones(3, D)}])
    step = compiled([{"x": torch.ones(8, D)}])
    step.train_step({"x": torch.ones(5, D)})
    with pytest.raises(
        BindError, match="is one tensor for one batch size and another for another; let the loss"
    ):
        step.train_step({"x": torch.ones(3, D)})
    assert sizes_of(step) == [8, 5]


def test_a_size_that_cannot_be_compiled_changes_nothing() -> None:
    model, optimizer, step = scaled()
    step.train_step(batch_of(8, "cpu"))
    step.train_step(batch_of(3, "cpu"))
    before = {key: value.clone() for key, value in values(model, optimizer).items()}
    with pytest.raises(AicfError, match="two rows are too few"):
        step.train_step(batch_of(2, "cpu"))
    assert_same_bits(values(model, optimizer), before)
    assert sizes_of(step) == [8, 3]
    step.capture()
    step.replay()


WRONG: dict[str, tuple[Batch, str]] = {
    "features": (
        {"x": torch.zeros(3, 7), "t": torch.zeros(3, D)},
        r"'x': expected float32\[8, 6\].*got float32\[3, 7\]",
    ),
    "rank": (
        {"x": torch.zeros(3), "t": torch.zeros(3, D)},
        r"'x': expected float32\[8, 6\].*got float32\[3\]",
    ),
    "dtype": ({"x": torch.zeros(3, D).double(), "t": torch.zeros(3, D)}, r"got float64\[3, 6\]"),
    "empty": ({"x": torch.zeros(0, D), "t": torch.zeros(0, D)}, r"got float32\[0, 6\]"),
    "name": ({"x": torch.zeros(3, D)}, "lacks 't'|'x': expected"),
    "one more": (
        {"x": torch.zeros(8, D), "t": torch.zeros(8, D), "z": torch.zeros(8)},
        "the batch has 'z' besides",
    ),
}


def test_ctrl_c_while_a_size_is_compiled_leaves_whole_steps(some: Some) -> None:
    """A signal at any moment: of tracing, lowering, compiling, binding, or of the step itself."""
    _, _, warm = made("cpu")
    began = time.perf_counter()
    warm.train_step(batch_of(5, "cpu"))
    length = time.perf_counter() - began
    model, optimizer, step = made("cpu")
    other, its, twin = made("cpu", 0, (8, 5))
    interrupted, moments = 0, some(range(MOMENTS))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for moment in moments:
            small = batch_of(5, "cpu", moment)
            done = _steps(optimizer)
            try:
                signal.setitimer(signal.ITIMER_REAL, length * (moment + 0.5) / MOMENTS)
                step.train_step(small)
                time.sleep(length)  # the step was faster: the signal comes here
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if _steps(optimizer) > done:
                twin.train_step(small)
            assert_same_bits(values(model, optimizer), values(other, its))
            step.train_step(batch_of(8, "cpu", moment))
            twin.train_step(batch_of(8, "cpu", moment))
            assert_same_bits(values(model, optimizer), values(other, its))
            step.recompile()  # for the size that was named
            assert sizes_of(step) == [8]
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted >= len(moments) // 2
    step.train_step(batch_of(5, "cpu"))
    assert sizes_of(step) == [8, 5]


def _steps(optimizer: torch.optim.Optimizer) -> float:
    """Those that it has taken."""
    states = [optimizer.state[p] for group in optimizer.param_groups for p in group["params"]]
    return max((float(state["step"]) for state in states if state), default=0.0)


@pytest.mark.parametrize("name", WRONG)
def test_what_differs_in_more_than_leading_sizes_is_refused(name: str) -> None:
    batch, message = WRONG[name]
    _, _, step = made("cpu")
    with pytest.raises(BindError, match=message):
        step.train_step(batch)
    assert sizes_of(step) == [8]


def test_sizes_that_do_not_fit_each_other_are_the_trace_s_error() -> None:
    _, _, step = made("cpu")
    with pytest.raises(AicfError, match=r"broadcast a dimension of length 4|must match"):
        step.train_step({"x": torch.zeros(3, D), "t": torch.zeros(4, D)})
    assert sizes_of(step) == [8]


@pytest.mark.parametrize("most", [-1, 1.5, True, "1", None])
def test_what_is_no_number_of_sizes(most: Any) -> None:
    with pytest.raises(BindError, match="further_sizes needs a whole number of at least 0"):
        made("cpu", most)

"""`step.check`: a step against torch's own on the live model; what it finds, what it leaves alone, what it refuses."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aicf_mlir import Comparison, compile_eval_step, compile_step, compile_train_step
from aicf_mlir.errors import BindError, StateError, UncomparedError
from aicf_mlir.frontend.aten_pointwise import applied
from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.step.eager import check
from aicf_mlir.step.eager.roundings import Move, by_a_unit
from aicf_mlir.step.eager.torch_step import TrainingLoop

B, D, CLASSES = 8, 16, 5


class Net(nn.Module):
    """Layers of many kinds, with running statistics and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(D, 32), nn.BatchNorm1d(32), nn.Linear(32, CLASSES)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
        self.drop, self.alpha, self.slopes = nn.Dropout(0.3), nn.AlphaDropout(0.2), nn.RReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.drop(F.gelu(self.norm(self.first(x))))
        h = self.slopes(h + 0.1 * torch.randn_like(h) + torch.rand(B, 32, device=h.device))
        h = self.block(h[:, None, :] * torch.arange(1.0, 4.0, device=h.device)[:, None]).mean(1)
        return self.last(self.alpha(h))


def loss_of(model: Any, batch: Any) -> Any:
    loss = F.cross_entropy(model(batch["x"]), batch["t"])
    return loss, {"doubled": loss * 2}


def batch_of(device: str, seed: int = 1) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, t = torch.randn(B, D, generator=generator), torch.randint(CLASSES, (B,), generator=generator)
    return {"x": x.to(device), "t": t.to(device)}


def step_of(device: str, **options: Any) -> Any:
    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return compile_train_step(
        model, optimizer, loss_fn=loss_of, example=batch_of(device), device=device, **options
    )


OPTIONS: list[dict[str, Any]] = [
    {},
    {"precision": "bf16"},
    {"precision": "f16"},
    {"clip_grad_norm": 0.1, "clip_grad_value": 0.01, "ema": 0.9},
    {"accumulate": 2, "keep_gradients": True},
    {"loss_scale": "dynamic", "metrics": {"doubled": "mean"}},
]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_honest_step_is_equal_and_everything_stays(
    options: dict[str, Any], exact: bool, device: str
) -> None:
    step = step_of(device, **options)
    batch = batch_of(device)
    given: Any = [batch, batch_of(device, 2)] if "accumulate" in options else batch
    fresh = step.check(given, steps=2, exact=exact)
    assert fresh.equal, str(fresh)
    step.train_step(given)
    model, optimizer = step._request.model, step._request.optimizers[0]
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    published = [p.grad if p.grad is None else p.grad.clone() for p in model.parameters()]
    assert ("keep_gradients" in options) == all(gradient is not None for gradient in published)
    drawn = torch.get_rng_state()
    found = step.check(steps=2, exact=exact)
    assert found.equal, str(found)
    assert torch.equal(torch.get_rng_state(), drawn)
    torch.testing.assert_close((model.state_dict(), optimizer.state_dict()), before, rtol=0, atol=0)
    torch.testing.assert_close([p.grad for p in model.parameters()], published, rtol=0, atol=0)
    names = {row.name for row in found.rows}
    assert {"loss", "parameter 'first.weight'", "state 'exp_avg' of 'first.weight'"} <= names
    assert ("gradient of parameter 'first.weight'" in names) == ("keep_gradients" in options)


def test_before_the_first_step_the_optimizer_keeps_nothing(device: str) -> None:
    step = step_of(device)
    assert step.check(batch_of(device))
    assert not step._request.optimizers[0].state
    assert step.state == "created"


def test_a_loop_body_with_a_scheduler(device: str) -> None:
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def body(batch: Any) -> Any:
        optimizer.zero_grad()
        loss, told = loss_of(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        return {"loss": loss, **told}

    step = compile_step(body, example=batch_of(device), device=device)
    step(batch_of(device))
    found = step.check(steps=3)
    assert found.equal, str(found)
    assert scheduler.last_epoch == 1 and optimizer.param_groups[0]["lr"] == 0.05
    with pytest.raises(BindError, match="exact=True\\) is not for loop bodies"):
        step.check(exact=True)


def test_an_evaluation_step(device: str) -> None:
    model = Net().to(device).eval()
    step = compile_eval_step(model, loss_fn=loss_of, example=batch_of(device), device=device)
    assert step.check(batch_of(device), exact=True)


def plain_step(layer: nn.Module) -> Any:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(D, D), layer, nn.Linear(D, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return compile_train_step(model, optimizer, loss_fn=loss_of, example=batch_of("cpu"), device="cpu")


def mistaken_step(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The front end takes tanh's GELU for that of the model: trace, interpreters and kernels agree with each other."""
    monkeypatch.setitem(
        TABLE, "aten.gelu.default", lambda call: applied(call, "gelu", [call["self"]], approximate="tanh")
    )
    return plain_step(nn.GELU())


def test_a_fault_of_the_trace_is_found_with_its_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain_step(nn.GELU()).check(batch_of("cpu"))
    found = mistaken_step(monkeypatch).check(batch_of("cpu"))
    assert not found.equal and found.layer == "1: GELU", str(found)
    assert "step 1 is not what torch does" in found.message


def test_ops_round_otherwise_only_where_a_tensor_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    moves: dict[int, int] = {}

    def counted(seed: int) -> Move:
        move, moves[seed] = by_a_unit(seed), 0

        def moving(tensor: torch.Tensor) -> torch.Tensor:
            moves[seed] += 1
            return move(tensor)

        return moving

    monkeypatch.setattr(check, "by_a_unit", counted)
    assert plain_step(nn.GELU()).check(batch_of("cpu"))
    assert not moves
    assert not mistaken_step(monkeypatch).check(batch_of("cpu"))
    assert [*moves] == [*range(*check.RUNS)]
    assert all(moves.values())


def test_the_certificate_finds_it_by_torch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    step = mistaken_step(monkeypatch)
    step.warmup(batch_of("cpu"))
    certificate = step.capture(batch_of("cpu"), verify="bitwise")
    assert [finding.check for finding in certificate.findings] == ["torch"]
    assert "the first layer that differs is 1: GELU" in str(certificate)


def test_a_learning_rate_that_is_one_percent_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    update = TrainingLoop.update

    def faster(loop: TrainingLoop) -> None:
        (group,) = loop.live.optimizers[0].param_groups
        group["lr"] *= 1.01
        update(loop)
        group["lr"] /= 1.01

    step = plain_step(nn.Tanh())
    step.train_step(batch_of("cpu"))
    assert step.check()
    monkeypatch.setattr(TrainingLoop, "update", faster)
    wrong = {row.name for row in step.check().differences}
    assert wrong == {f"parameter '{name}'" for name in ("0.weight", "0.bias", "2.weight", "2.bias")}


def test_one_wrong_row_of_a_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Embedding(5000, 8), nn.Flatten(), nn.Linear(16, CLASSES))
    batch = {"x": torch.randint(5000, (64, 2)), "t": torch.randint(CLASSES, (64,))}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(model, optimizer, loss_fn=loss_of, example=batch, device="cpu")
    assert step.check(batch)
    update = TrainingLoop.update

    def lossy(loop: TrainingLoop) -> None:
        loop.live.trained["0.weight"].grad[batch["x"][0, 0]] = 0.0  # pyright: ignore[reportOptionalSubscript]
        update(loop)

    monkeypatch.setattr(TrainingLoop, "update", lossy)
    (row,) = step.check(batch).differences
    assert row.name == "parameter '0.weight'"


def test_what_cannot_be_compared_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(loop: TrainingLoop, batch: Any) -> Any:
        loop.live.trained["0.weight"].data.zero_()
        raise torch.OutOfMemoryError("no memory is left\nmore")

    step = plain_step(nn.Tanh())
    step.warmup(batch_of("cpu"))
    monkeypatch.setattr(TrainingLoop, "forward_and_backward", fails)
    before = copy.deepcopy(step._request.model.state_dict())
    certificate = step.capture(batch_of("cpu"), verify="bitwise")
    assert certificate.uncompared == "torch's own step fails: OutOfMemoryError: no memory is left"
    assert certificate.equal and "not compared: torch's own step fails" in str(certificate)
    with pytest.raises(UncomparedError, match="torch's own step fails"):
        step.check()
    torch.testing.assert_close(step._request.model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("draw", "why"),
    [
        (lambda x: F.dropout(x, 0.4), "torch drops with probability 0.4, the compiled step with 0.5"),
        (
            lambda x: x + torch.rand_like(x),
            r"torch draws uniform numbers of \[8, 16\], the compiled step nn.dropout",
        ),
        (lambda x: F.dropout(F.dropout(x)), "torch draws more often than the compiled step, 1 times"),
        (lambda x: x, "torch draws 0 times, the compiled step 1 times"),
        (lambda x: x + torch.poisson(x.abs()), "torch draws by aten.poisson"),
    ],
)
def test_other_draws_than_those_of_the_trace_are_said(draw: Any, why: str) -> None:
    class Drawing(nn.Dropout):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input)

    step = plain_step(Drawing())
    assert step.check(batch_of("cpu"))
    Drawing.forward = lambda self, input: draw(input)  # pyright: ignore[reportAttributeAccessIssue]
    live = step._live(step._active)
    with pytest.raises(UncomparedError, match=why):
        step._torch_step(step._active, live)(live.batch)


def test_stand_ins_that_are_stepped_are_no_steps_by_hand() -> None:
    """The warning of a step by hand is for the user's own optimizer, once."""
    step = plain_step(nn.Tanh())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert step.check(batch_of("cpu"), exact=True)
    with pytest.warns(UserWarning, match="found no gradient and did nothing"):
        step._request.optimizers[0].step()


def test_a_call_without_inputs_or_with_a_wrong_count() -> None:
    step = plain_step(nn.Tanh())
    with pytest.raises(StateError, match=r"check\(\) has no inputs yet; pass a batch"):
        step.check()
    with pytest.raises(BindError, match=r"check\(steps=…\) needs a positive integer, got 0"):
        step.check(batch_of("cpu"), steps=0)


def test_a_comparison_prints_and_is_json() -> None:
    found: Comparison = plain_step(nn.Tanh()).check(batch_of("cpu"))
    assert "1 steps beside torch eager: equal" in str(found)
    assert '"equal": true' in found.to_json()

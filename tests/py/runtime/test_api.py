"""The API as its users see it: short and long form, warm-up, states, reports and logs."""

from __future__ import annotations

import gc
import logging

import pytest
import torch
from models import OptimizerConfig, compiled, cross_entropy, mlp, mse, regression, to_device, values
from oracle import assert_same_bits, same_bits

import aicf_mlir
from aicf_mlir import _C
from aicf_mlir.errors import BindError
from aicf_mlir.stages import STAGE_NAMES

B, D = 4, 8
ADAM = OptimizerConfig(torch.optim.Adam, {"lr": 1e-3})
UPDATES_APART: dict[str, dict[str, bool]] = {"cpu": {}, "cuda": {"check_finite": True}}
"""Options with which the updates of a small step are launches of their own, as where gradients are kept, and have their bits."""


def test_short_form(device: str) -> None:
    """The example of the specification, word for word but for the device."""
    from aicf_mlir.nn import Linear, ReLU, Sequential
    from aicf_mlir.optim import Adam

    torch.manual_seed(0)
    x, t = regression(B, D)["x"].to(device), regression(B, D)["t"].to(device)

    model = Sequential(Linear(D, D), ReLU(), Linear(D, D)).to(device)
    opt = Adam(model, lr=1e-3)
    model.compile(optimizer=opt, B=B, D=D, device=device, dtype=torch.float32)
    first = model.train_step({"x": x, "t": t})
    model.capture({"x": x, "t": t})
    last = model.replay(n=3, sync=True)

    assert (first.shape, last.shape) == ((), ())
    assert last < first, "four steps of Adam on one batch must lower its loss"
    assert float(opt.state[model[0].weight]["step"]) == 4


def test_short_form_is_the_long_form(device: str) -> None:
    torch.manual_seed(0)
    short = aicf_mlir.nn.Sequential(
        aicf_mlir.nn.Linear(D, D), aicf_mlir.nn.ReLU(), aicf_mlir.nn.Linear(D, D)
    ).to(device)
    opt = aicf_mlir.optim.Adam(short, lr=1e-3)
    short.compile(optimizer=opt, B=B, D=D, device=device)
    batch = to_device(regression(B, D), device)
    loss = short.train_step(batch)

    torch.manual_seed(0)
    long = torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.ReLU(), torch.nn.Linear(D, D)).to(device)
    plain = torch.optim.Adam(long.parameters(), lr=1e-3)
    step = aicf_mlir.compile_train_step(long, plain, B=B, D=D, device=device)
    expected = step.train_step(batch)
    assert_same_bits({"loss": loss, **values(short, opt)}, {"loss": expected, **values(long, plain)})


def test_modules_and_optimizers_are_torch_subclasses() -> None:
    model = aicf_mlir.nn.Sequential(aicf_mlir.nn.Linear(D, D))
    assert isinstance(model, torch.nn.Sequential)
    assert isinstance(model[0], torch.nn.Linear)
    for name in ("SGD", "Adam", "AdamW"):
        ours, theirs = getattr(aicf_mlir.optim, name), getattr(torch.optim, name)
        assert issubclass(ours, theirs)
        of_module, of_iterable = ours(model, lr=0.1), ours(model.parameters(), lr=0.1)
        assert (
            of_module.state_dict()
            == of_iterable.state_dict()
            == theirs(model.parameters(), lr=0.1).state_dict()
        )
        groups = ours([{"params": [model[0].weight], "lr": 0.5}, {"params": [model[0].bias]}], lr=0.1)
        assert [group["lr"] for group in groups.param_groups] == [0.5, 0.1]


def test_optimizer_reads_pins_and_releases_bias_corrections(device: str) -> None:
    model = aicf_mlir.nn.Sequential(aicf_mlir.nn.Linear(D, D)).to(device)
    opt = aicf_mlir.optim.Adam(model, lr=1e-3)
    model.compile(optimizer=opt, B=B, D=D, device=device)
    batch = to_device(regression(B, D), device)
    model.train_step(batch)
    assert opt.bc1_inv == pytest.approx(1 / (1 - 0.9), rel=1e-12)
    assert opt.bc2_inv == pytest.approx(1 / (1 - 0.999), rel=1e-12)
    opt.bc1_inv = 1.0
    model.train_step(batch)
    assert opt.bc1_inv == 1.0
    opt.bc1_inv = None
    model.train_step(batch)
    assert opt.bc1_inv == pytest.approx(1 / (1 - 0.9**3), rel=1e-12)


def test_long_form(device: str) -> None:
    model = mlp(D, 17, 3).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batch = to_device({"x": torch.randn(B, D), "t": torch.tensor([0, 2, 1, 0])}, device)
    step = aicf_mlir.compile_train_step(
        model,
        optimizer,
        loss_fn=cross_entropy,
        example=batch,
        device=device,
        dtype=torch.float32,
        warmup_inputs=batch,
        warmup_runs=2,
        warmup_required=True,
        name="classifier",
    )
    assert step.state == "warmed", "warmup_inputs warms up inside compile"
    assert not optimizer.state
    step.capture(batch)
    step.replay(n=2, inputs=batch, sync=True)
    assert step.name == "classifier"
    assert step.meta["step"] == 2


def test_the_loss_is_the_models_loss_before_the_update(device: str) -> None:
    setup = compiled(ADAM, device)
    with torch.no_grad():
        expected = mse(setup.model, setup.batch)
    loss = setup.train()
    torch.testing.assert_close(loss, expected)
    assert (loss.shape, loss.dtype, loss.device, loss.requires_grad) == (
        (),
        torch.float32,
        setup.step.device,
        False,
    )


def test_the_loss_is_a_tensor_of_its_own(device: str) -> None:
    setup = compiled(ADAM, device)
    losses = [setup.train()]
    setup.step.capture(setup.batch)
    losses += [setup.step.replay() for _ in range(3)]
    kept = [float(loss) for loss in losses]
    setup.step.replay(5)
    assert [float(loss) for loss in losses] == kept, "a later step must not write into an earlier loss"
    assert len(set(kept)) == 4
    losses[0].fill_(100.0)
    assert float(setup.step.replay()) < kept[0]


def test_parameters_stay_torch_parameters(device: str) -> None:
    setup = compiled(ADAM, device)
    parameter = setup.model[0].weight
    before = parameter.detach().clone()
    setup.train()
    assert isinstance(parameter, torch.nn.Parameter)
    assert parameter is setup.optimizer.param_groups[0]["params"][0]
    assert not torch.equal(parameter, before)
    with torch.no_grad():
        parameter.zero_()  # in place is fine: it is the same memory
    setup.train()
    assert float(parameter.detach().abs().max()) < 2e-3
    setup.model(setup.batch["x"]).sum().backward()
    assert parameter.grad is not None, "eager torch still works on the model"


def test_states(device: str) -> None:
    setup = compiled(ADAM, device)
    step = setup.step
    seen = [step.state]
    step.warmup(setup.batch)
    seen.append(step.state)
    step.capture(setup.batch)
    seen.append(step.state)
    step.replay()
    step.train_step(setup.batch)
    seen.append(step.state)
    step.reset()
    seen.append(step.state)
    step.train_step(setup.batch)
    seen.append(step.state)
    step.capture()
    step.replay()
    seen.append(step.state)
    assert seen == ["created", "warmed", "captured", "captured", "reset", "warmed", "captured"]


@pytest.mark.parametrize("runs", [1, 3])
def test_warmup_leaves_everything_bitwise(runs: int, device: str) -> None:
    setup = compiled(OptimizerConfig(torch.optim.Adam, {"lr": 0.1, "amsgrad": True}), device)
    for steps in (0, 2):
        setup.train(steps)
        before = setup.values(), dict(setup.step.meta), setup.optimizer.state_dict()
        setup.step.warmup(setup.batch, runs)
        assert_same_bits(setup.values(), before[0])
        assert dict(setup.step.meta) == before[1]
        assert setup.optimizer.state_dict()["param_groups"] == before[2]["param_groups"]
    expected = compiled(OptimizerConfig(torch.optim.Adam, {"lr": 0.1, "amsgrad": True}), device)
    setup.train()
    expected.train(3)
    assert_same_bits(setup.values(), expected.values())


def test_without_required_warmup_capture_warms_up_by_itself(device: str) -> None:
    setup = compiled(ADAM, device, warmup_required=False)
    control = compiled(ADAM, device)
    before = setup.values()
    setup.step.capture(setup.batch)
    assert setup.step.state == "captured"
    assert_same_bits(setup.values(), before)
    loss, expected = setup.step.replay(2), control.train(2)
    assert_same_bits({"loss": loss, **setup.values()}, {"loss": expected, **control.values()})


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_ir_of_every_stage(stage: str, device: str) -> None:
    text = compiled(ADAM, device).step.ir(stage)
    fused = (
        "gemm_epilogue" if device == "cpu" else "horizontal"
    )  # there a step as small as this is a few grids
    mark = {
        "nn": "nn.linear",
        "grad": "nn.mse_loss_grad",
        "step": "optim.adam",
        "lowered": "kernel.gemm",
        "fused": f"kernel.{fused}",
    }
    assert mark.get(stage, fused) in text
    assert text.endswith("\n")


def test_stages_print_the_same_after_training(device: str) -> None:
    setup = compiled(ADAM, device)
    before = [setup.step.ir(stage) for stage in STAGE_NAMES]
    setup.train(2)
    assert [setup.step.ir(stage) for stage in STAGE_NAMES] == before


def test_memory_report_is_the_plans(device: str) -> None:
    setup = compiled(ADAM, device, name="reported")
    report = setup.step.memory_report()
    assert f" peak {report.peak} " in setup.step.ir("plan"), "the report's peak is the one in the plan's text"
    assert report.peak == sum(report.arenas.values())
    assert report.name == "reported"
    parameters = sum(p.numel() * p.element_size() for p in setup.model.parameters())
    assert report.arenas["param"] >= parameters
    assert report.arenas["state"] >= 2 * parameters
    for arena, slot, offset, size in report.slots:
        assert offset + size <= report.arenas[arena], f"slot {slot} ends behind its arena"
    assert f"peak {report.peak:,} bytes" in str(report)


def test_memory_report_is_what_is_allocated(device: str) -> None:
    first = compiled(ADAM, device)
    gc.collect()  # what earlier tests left does not go in between
    before = first.step.stats()["live_bytes"]
    second = compiled(ADAM, device)
    assert second.step.stats()["live_bytes"] - before == second.step.memory_report().peak


def test_stats_count_launches_and_no_allocation_per_step(device: str) -> None:
    setup = compiled(ADAM, device)
    setup.train(2)
    setup.step.capture(setup.batch)
    setup.step.replay(2)
    before = setup.step.stats()
    assert before["launches_per_step"] == len(setup.step.planned_kernels())
    setup.step.replay(5)
    setup.step.train_step(setup.batch)
    after = setup.step.stats()
    assert after["allocations"] == before["allocations"], "a step allocates nothing"
    assert after["live_bytes"] == before["live_bytes"]
    assert after["replays"] - before["replays"] == 5
    assert after["runs"] - before["runs"] == 1
    assert after["launches"] - before["launches"] == 6 * before["launches_per_step"]


def test_capture_is_logged_with_its_name(device: str, caplog: pytest.LogCaptureFixture) -> None:
    setup = compiled(ADAM, device, name="my_step")
    setup.step.warmup(setup.batch)
    with caplog.at_level(logging.INFO, logger="aicf"):
        setup.step.capture(setup.batch)
        setup.step.reset()
    assert [record.getMessage() for record in caplog.records if record.name == "aicf"] == [
        "my_step: capture begins",
        f"my_step: capture ends, {len(setup.step.planned_kernels())} launches",
        "my_step: reset",
    ]


def test_the_name_is_in_text_and_errors(device: str) -> None:
    setup = compiled(ADAM, device, name="my_step")
    assert "@my_step" in setup.step.ir("nn")
    assert "@my_step" in setup.step.ir("plan")
    with pytest.raises(aicf_mlir.StateError, match="my_step: "):
        setup.step.replay()


def test_keep_gradients(device: str) -> None:
    setup = compiled(ADAM, device, keep_gradients=True)
    twin = mlp(8, 17, 8).to(device)
    mse(twin, setup.batch).backward()
    setup.train()
    expected = {name: p.grad for name, p in twin.named_parameters()}
    assert setup.step.gradients.keys() == expected.keys()
    for name, gradient in setup.step.gradients.items():
        torch.testing.assert_close(gradient, expected[name], msg=lambda m, name=name: f"{name}: {m}")
    without = compiled(ADAM, device, **UPDATES_APART[device])
    without.train()
    assert without.step.gradients == {}
    assert_same_bits(setup.values(), without.values())


def test_two_steps_beside_each_other(device: str) -> None:
    """Two compiled models share nothing."""
    first, second = compiled(ADAM, device), compiled(ADAM, device, model=mlp(8, 17, 8, seed=5))
    control = compiled(ADAM, device)
    for _ in range(3):
        first.train()
        second.train()
    control.train(3)
    assert_same_bits(first.values(), control.values())
    assert not same_bits(second.values()["0.weight"], control.values()["0.weight"])


def test_default_device() -> None:
    model = mlp(8, 17, 8)
    usable = torch.cuda.is_available() and _C.device_count("cuda") > 0
    if usable:
        model = model.to("cuda")
    step = aicf_mlir.compile_train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), B=B, D=D)
    assert step.device.type == ("cuda" if usable else "cpu")


def test_inputs_that_are_not_contiguous(device: str) -> None:
    setup, control = compiled(ADAM, device), compiled(ADAM, device)
    strided = {name: t.t().contiguous().t() for name, t in setup.batch.items()}
    setup.step.train_step(strided)
    control.train()
    assert_same_bits(setup.values(), control.values())


def test_an_input_that_requires_a_gradient_is_refused(device: str) -> None:
    """Torch's backward would leave one in `x.grad`."""
    setup = compiled(ADAM, device)
    before = setup.values()
    with pytest.raises(BindError, match=r"input 'x' requires a gradient, .*; pass x.detach\(\)"):
        setup.step.train_step({**setup.batch, "x": setup.batch["x"].clone().requires_grad_(True)})
    assert_same_bits(setup.values(), before)


def test_a_batch_may_be_reused_and_overwritten(device: str) -> None:
    """The step copies its inputs: what the user does with the tensors afterwards changes nothing."""
    setup, control = compiled(ADAM, device), compiled(ADAM, device)
    for each in (setup, control):
        each.train()
        each.step.capture(each.batch)
    setup.batch["x"].zero_()
    setup.step.replay(2)
    control.step.replay(2)
    assert_same_bits(setup.values(), control.values())


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_the_callers_gradient_mode_does_not_matter(context: type, device: str) -> None:
    setup, control = compiled(ADAM, device), compiled(ADAM, device)
    with context():
        setup.train(2)
        setup.step.capture(setup.batch)
        setup.step.replay(2)
    setup.train()
    control.train(5)
    assert_same_bits(setup.values(), control.values())


def test_the_cpu_by_its_index() -> None:
    step = compiled(ADAM, "cpu:0").step
    assert step.device == torch.device("cpu")


def test_memory_report_without_reuse_is_never_less_than_the_arena() -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(6)])
    optimizer = torch.optim.Adam(model.parameters())
    step = aicf_mlir.compile_train_step(model, optimizer, B=2, D=3, device="cpu")
    report = step.memory_report()
    assert report.unshared >= report.arenas["temp"] > 0

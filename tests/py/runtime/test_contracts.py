"""Contracts A–F: what a compiled train step never breaks. Bits are compared, not numbers that are close."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import children
import pytest
import torch
from models import CONTRACT_OPTIMIZERS, OptimizerConfig, Setup, compiled, regression, to_device
from oracle import assert_same_bits, same_bits

ADAM = CONTRACT_OPTIMIZERS[3]
MOMENTUM = CONTRACT_OPTIMIZERS[1]

every_optimizer = pytest.mark.parametrize("optimizer", CONTRACT_OPTIMIZERS, ids=str)


def captured(optimizer: OptimizerConfig, device: str) -> Setup:
    setup = compiled(optimizer, device)
    setup.step.warmup(setup.batch)
    setup.step.capture(setup.batch)
    return setup


class TestContractA:
    """One step changes the parameters, by the size the optimizer promises."""

    def test_a_step_of_adam_moves_each_weight_by_about_lr(self, device: str) -> None:
        setup = compiled(OptimizerConfig(torch.optim.Adam, {"lr": 1e-3}), device)
        before = setup.values()
        setup.train()
        change = (setup.values()["0.weight"] - before["0.weight"]).abs()
        assert change.mean().item() == pytest.approx(1e-3, rel=0.1), (
            "Adam's first step is lr in every weight with a gradient"
        )
        assert change.max().item() <= 1.01e-3

    @every_optimizer
    def test_a_every_parameter_changes(self, optimizer: OptimizerConfig, device: str) -> None:
        setup = compiled(optimizer, device)
        before = setup.values()
        setup.train()
        after = setup.values()
        still = [name for name in before if same_bits(before[name], after[name])]
        assert not still, f"one step left {still} as they were"


class TestContractB:
    """`replay(n)` is bitwise equal to n eager steps."""

    @every_optimizer
    @pytest.mark.parametrize("n", [1, 2, 7])
    def test_b_replay_equals_eager_steps(self, optimizer: OptimizerConfig, n: int, device: str) -> None:
        eager, replayed = compiled(optimizer, device), captured(optimizer, device)
        expected, loss = eager.train(n), replayed.step.replay(n)
        assert_same_bits({"loss": loss, **replayed.values()}, {"loss": expected, **eager.values()})

    @every_optimizer
    def test_b_replay_obeys_lr_changed_between_replays(self, optimizer: OptimizerConfig, device: str) -> None:
        eager, replayed = compiled(optimizer, device), captured(optimizer, device)
        for lr, n in ((1e-2, 3), (3e-3, 2), (0.0, 1), (7e-2, 4)):
            eager.optimizer.param_groups[0]["lr"] = lr
            replayed.optimizer.param_groups[0]["lr"] = lr
            expected, loss = eager.train(n), replayed.step.replay(n)
            assert_same_bits({"loss": loss, **replayed.values()}, {"loss": expected, **eager.values()})

    @every_optimizer
    def test_b_replay_with_new_inputs(self, optimizer: OptimizerConfig, device: str) -> None:
        eager, replayed = compiled(optimizer, device), captured(optimizer, device)
        for seed in range(5):
            batch = to_device(regression(5, seed=seed), device)
            expected, loss = eager.step.train_step(batch), replayed.step.replay(inputs=batch)
            assert_same_bits({"loss": loss, **replayed.values()}, {"loss": expected, **eager.values()})

    def test_b_updates_accumulate(self, device: str) -> None:
        once, thrice = captured(ADAM, device), captured(ADAM, device)
        for _ in range(3):
            once.step.replay()
        thrice.step.replay(3)
        assert_same_bits(once.values(), thrice.values())

    def test_b_capture_changes_nothing(self, device: str) -> None:
        setup = compiled(ADAM, device)
        setup.train(2)
        before = setup.values()
        setup.step.capture(setup.batch)
        assert_same_bits(setup.values(), before)

    def test_b_eager_steps_and_replays_mix(self, device: str) -> None:
        eager, mixed = compiled(ADAM, device), captured(ADAM, device)
        eager.train(6)
        mixed.train(1)
        mixed.step.replay(2)
        mixed.train(2)
        mixed.step.replay()
        assert_same_bits(mixed.values(), eager.values())


class TestContractC:
    """A host scalar changes what the next replay does; putting it back puts the behaviour back."""

    @pytest.mark.parametrize(
        "name, value",
        [
            ("lr", 0.5),
            ("beta1", 0.2),
            ("beta2", 0.3),
            ("eps", 0.1),
            ("weight_decay", 0.5),
            ("bc1_inv", 2.0),
            ("bc2_inv", 3.0),
        ],
    )
    def test_c_each_meta_value_counts(self, name: str, value: float, device: str) -> None:
        setup = captured(ADAM, device)
        start = setup.step.snapshot()
        expected_loss, expected = setup.step.replay(2), setup.values()
        setup.step.restore(start)

        setup.step.meta[name] = value
        setup.step.replay(2)
        assert not same_bits(setup.values()["0.weight"], expected["0.weight"]), (
            f"{name} = {value} changed nothing"
        )

        setup.step.restore(start)
        loss = setup.step.replay(2)
        assert_same_bits({"loss": loss, **setup.values()}, {"loss": expected_loss, **expected})

    @pytest.mark.parametrize("name", ["bc1_inv", "bc2_inv"])
    def test_c_a_pinned_bias_correction_stays_until_released(self, name: str, device: str) -> None:
        setup, free = captured(ADAM, device), captured(ADAM, device)
        setup.step.meta[name] = 1.25
        setup.step.replay(3)
        assert setup.step.meta[name] == 1.25, "a pinned correction must not follow the step counter"
        free.step.replay(3)
        assert not same_bits(setup.values()["0.weight"], free.values()["0.weight"])

        setup.step.meta.release(name)
        setup.step.replay()
        beta = setup.step.meta["beta" + name[2]]
        assert setup.step.meta[name] == pytest.approx(1 / (1 - beta**4), rel=1e-12), (
            "released, it follows the step again"
        )

    def test_c_pinning_to_the_free_value_changes_nothing(self, device: str) -> None:
        pinned, free = captured(ADAM, device), captured(ADAM, device)
        free.step.replay()
        for name in ("bc1_inv", "bc2_inv"):
            pinned.step.meta[name] = free.step.meta[name]
        pinned.step.replay()
        assert_same_bits(pinned.values(), free.values())

    def test_c_lr_zero_moves_no_parameter(self, device: str) -> None:
        setup = captured(ADAM, device)
        before = dict(setup.model.named_parameters())
        before = {name: parameter.detach().clone() for name, parameter in before.items()}
        setup.step.meta["lr"] = 0.0
        setup.step.replay(3)
        assert_same_bits({name: p.detach() for name, p in setup.model.named_parameters()}, before)
        assert setup.step.meta["step"] == 3

    def test_c_meta_writes_the_param_group_and_the_reverse(self, device: str) -> None:
        setup = captured(ADAM, device)
        setup.step.meta["lr"] = 0.125
        assert setup.optimizer.param_groups[0]["lr"] == 0.125
        setup.optimizer.param_groups[0]["betas"] = (0.5, 0.75)
        assert (setup.step.meta["beta1"], setup.step.meta["beta2"]) == (0.5, 0.75)


class TestContractD:
    """`reset` frees the graph and nothing else; `restore` brings back every bit."""

    @every_optimizer
    def test_d_reset_keeps_parameters_and_state(self, optimizer: OptimizerConfig, device: str) -> None:
        setup, control = captured(optimizer, device), captured(optimizer, device)
        setup.step.replay(2)
        before = setup.values()
        setup.step.reset()
        assert_same_bits(setup.values(), before)

        setup.step.warmup(setup.batch)
        setup.step.capture(setup.batch)
        loss, expected = setup.step.replay(3), control.step.replay(5)
        assert_same_bits({"loss": loss, **setup.values()}, {"loss": expected, **control.values()})

    def test_d_reset_frees_what_capture_took(self, device: str) -> None:
        setup = compiled(ADAM, device)
        setup.step.warmup(setup.batch)
        live = setup.step.stats()["live_bytes"]
        for _ in range(3):
            setup.step.warmup(setup.batch)
            setup.step.capture(setup.batch)
            setup.step.replay(2)
            setup.step.reset()
        assert setup.step.stats()["live_bytes"] == live

    @every_optimizer
    def test_d_restore_is_bitwise_and_so_is_what_follows(
        self, optimizer: OptimizerConfig, device: str
    ) -> None:
        setup = captured(optimizer, device)
        setup.step.replay(2)
        saved, before = setup.step.snapshot(), setup.values()
        loss, after = setup.step.replay(3), None
        after = setup.values()

        setup.optimizer.param_groups[0]["lr"] *= 3
        setup.step.replay(2)
        setup.step.restore(saved)
        assert_same_bits(setup.values(), before)
        again = setup.step.replay(3)
        assert_same_bits({"loss": again, **setup.values()}, {"loss": loss, **after})

    def test_d_a_snapshot_can_be_restored_many_times(self, device: str) -> None:
        setup = captured(MOMENTUM, device)
        saved, before = setup.step.snapshot(), setup.values()
        for n in (1, 2, 3):
            setup.step.replay(n)
            setup.step.restore(saved)
            assert_same_bits(setup.values(), before)
        assert not setup.optimizer.state, (
            "the snapshot is from before the first step, where torch's state is empty"
        )


_PROGRAM = """
import sys
sys.path[:0] = {path!r}
from models import compiled
from test_contracts import CONTRACT_OPTIMIZERS, digest
for optimizer in CONTRACT_OPTIMIZERS[::3]:
    setup = compiled(optimizer, {device!r})
    setup.train(2)
    setup.step.capture(setup.batch)
    setup.step.replay(3)
    print(optimizer, digest(setup))
"""


def digest(setup: Setup) -> str:
    """A hash over the plan's text and every byte of parameters and state."""
    sha = hashlib.sha256(setup.step.ir("plan").encode())
    for name, tensor in sorted(setup.values().items()):
        sha.update(name.encode())
        sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


class TestContractE:
    """Same inputs, same seed, same plan: the same bits."""

    @pytest.mark.usual
    def test_e_fresh_processes_agree(self, device: str) -> None:
        program = _PROGRAM.format(path=[children.SUPPORT, str(Path(__file__).parent)], device=device)
        outputs = [
            children.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads},
                check=True,
            ).stdout
            for seed, threads in (("1", "1"), ("77", "2"))
        ]
        assert len(outputs[0].splitlines()) == len(CONTRACT_OPTIMIZERS[::3]) > 2
        assert outputs[0] == outputs[1], "two processes trained to different bits, or planned differently"

    def test_e_compiled_twice_is_the_same(self, device: str) -> None:
        first, second = compiled(ADAM, device), compiled(ADAM, device)
        first.train(3)
        second.train(3)
        assert digest(first) == digest(second)


class TestContractF:
    """The kernel ids that ran are the kernel ids that were planned, in order."""

    @every_optimizer
    def test_f_executed_kernels_are_the_planned_ones(self, optimizer: OptimizerConfig, device: str) -> None:
        setup = compiled(optimizer, device)
        planned = setup.step.planned_kernels()
        assert planned, "the plan has no launches"
        setup.train()
        assert setup.step.executed_kernels() == planned, "eager"
        setup.step.capture(setup.batch)
        setup.step.replay(3)
        assert setup.step.executed_kernels() == planned, "replay"

    def test_f_the_plan_text_names_them(self, device: str) -> None:
        setup = compiled(ADAM, device)
        text = setup.step.ir("plan")
        position = 0
        for kernel in setup.step.planned_kernels():
            position = text.find(f'"{kernel}"', position) + 1
            assert position, f"{kernel} is not in the plan's text, in this order"

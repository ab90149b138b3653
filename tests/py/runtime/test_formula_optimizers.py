"""Optimizers that are formulas: state is torch's own in both directions, schedules are followed, numbers live in slots."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import OPTIMIZERS, Batch, OptimizerConfig, mlp, mse, regression, to_device, values
from oracle import assert_same_bits
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.errors import BindError, DataError
from aicf_mlir.optimizers import CLASSES
from aicf_mlir.optimizers.pointwise import PointwiseRule

FORMULAS = {row.title for row, rule in CLASSES if issubclass(rule, PointwiseRule)}
CONFIGS = [config for config in OPTIMIZERS if config.kind.__name__ in FORMULAS]
STEPS = 6

every_formula = pytest.mark.parametrize("config", CONFIGS, ids=str)


def batches(device: str, seed: int = 0) -> list[Batch]:
    return [to_device(regression(seed=seed + number), device) for number in range(STEPS)]


class Trained:
    """A model and its optimizer, from the same start each time."""

    def __init__(self, config: Callable[[Any], torch.optim.Optimizer], device: str):
        torch.manual_seed(0)
        self.model = mlp(8, 17, 8).to(device)
        self.optimizer = config(self.model)
        self.device = device

    def load(self, other: Trained) -> None:
        """What is saved of another."""
        self.model.load_state_dict(other.model.state_dict())
        self.optimizer.load_state_dict(copy.deepcopy(other.optimizer.state_dict()))

    def in_torch(self, given: list[Batch], scheduler: Any = None) -> None:
        """Some steps of torch."""
        for batch in given:
            self.optimizer.zero_grad()
            mse(self.model, batch).backward()
            self.optimizer.step()
            if scheduler is not None:
                scheduler.step()

    def compiled(self, given: list[Batch], scheduler: Any = None) -> None:
        """Some steps of ours, the later ones replayed."""
        step = compile_train_step(
            self.model, self.optimizer, loss_fn=mse, example=given[0], device=self.device
        )
        for number, batch in enumerate(given):
            if number == STEPS // 2:
                step.capture(batch)
            _ = step.train_step(batch) if number < STEPS // 2 else step.replay(inputs=batch)
            if scheduler is not None:
                scheduler.step()

    def values(self) -> dict[str, torch.Tensor]:
        return values(self.model, self.optimizer)


def close(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    """Equal, but for what rounding leaves of some steps; a Rprop's step size of a tiny gradient may turn at another step."""
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        allowed = 2e-4 * float(value.abs().max()) + 1e-7
        far = (ours[name] - value).abs() > allowed
        assert float(far.double().mean()) <= (0.02 if name.endswith((".prev", ".step_size")) else 0.0), name


@every_formula
def test_state_goes_to_torch_and_back(config: OptimizerConfig, device: str) -> None:
    first, second = batches(device), batches(device, STEPS)
    reference = Trained(config, device)
    reference.in_torch([*first, *second])
    forth, onward = Trained(config, device), Trained(config, device)
    forth.compiled(first)
    onward.load(forth)
    onward.in_torch(second)
    close(onward.values(), reference.values())
    back, again = Trained(config, device), Trained(config, device)
    back.in_torch(first)
    again.load(back)
    again.compiled(second)
    close(again.values(), reference.values())


@every_formula
def test_a_reloaded_state_trains_on_with_the_same_bits(config: OptimizerConfig, device: str) -> None:
    first, second = batches(device), batches(device, STEPS)
    whole, begun, resumed = (Trained(config, device) for _ in range(3))
    step = compile_train_step(whole.model, whole.optimizer, loss_fn=mse, example=first[0], device=device)
    for batch in (*first, *second):
        step.train_step(batch)
    begun.compiled(first)
    resumed.load(begun)
    resumed.compiled(second)
    assert_same_bits(resumed.values(), whole.values())


@every_formula
def test_a_cleared_state_begins_anew(config: OptimizerConfig, device: str) -> None:
    ours, theirs = Trained(config, device), Trained(config, device)
    given = batches(device)
    step = compile_train_step(ours.model, ours.optimizer, loss_fn=mse, example=given[0], device=device)
    for number, batch in enumerate(given):
        if number == STEPS // 2:
            ours.optimizer.state.clear()
            theirs.optimizer.state.clear()
        step.train_step(batch)
        try:
            theirs.in_torch([batch])
        except KeyError:  # torch 2.11 makes Adagrad's state with the optimizer alone
            assert config.kind is torch.optim.Adagrad
            return
    close(ours.values(), theirs.values())


@every_formula
def test_two_steps_share_one_optimizer(config: OptimizerConfig, device: str) -> None:
    ours, theirs = Trained(config, device), Trained(config, device)
    given = batches(device)
    steps = [
        compile_train_step(ours.model, ours.optimizer, loss_fn=mse, example=given[0], device=device)
        for _ in range(2)
    ]
    for number, batch in enumerate(given):
        steps[number // 2 % 2].train_step(batch)
        theirs.in_torch([batch])
    close(ours.values(), theirs.values())


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    """With the momentum, or the first beta, cycled against the rate."""
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=2 * STEPS)


def warm_up_and_cosine(optimizer: torch.optim.Optimizer) -> Any:
    """As transformers are trained."""
    schedulers = torch.optim.lr_scheduler
    warm = schedulers.LinearLR(optimizer, 0.1, total_iters=2)
    return schedulers.SequentialLR(optimizer, [warm, schedulers.CosineAnnealingLR(optimizer, STEPS)], [2])


def cycled(config: OptimizerConfig) -> bool:
    """Whether it has a momentum that OneCycleLR can cycle."""
    defaults = config(torch.nn.Linear(1, 1)).defaults
    return "betas" in defaults or defaults.get("momentum", 0) > 0


SCHEDULES = [
    *((config, warm_up_and_cosine) for config in CONFIGS),
    *((config, one_cycle) for config in CONFIGS if cycled(config)),
]


@pytest.mark.parametrize(
    ("config", "schedule"), SCHEDULES, ids=[f"{config}-{each.__name__}" for config, each in SCHEDULES]
)
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_schedules_are_followed(
    config: OptimizerConfig, schedule: Callable[[torch.optim.Optimizer], Any], device: str
) -> None:
    ours, theirs = Trained(config, device), Trained(config, device)
    ours.compiled(batches(device), schedule(ours.optimizer))
    theirs.in_torch(batches(device), schedule(theirs.optimizer))
    close(ours.values(), theirs.values())


@every_formula
def test_no_number_is_frozen(config: OptimizerConfig) -> None:
    trained = Trained(config, "cpu")
    step = compile_train_step(
        trained.model, trained.optimizer, loss_fn=mse, example=batches("cpu")[0], device="cpu"
    )
    group = trained.optimizer.param_groups[0]
    flat = [each for value in group.values() for each in (value if isinstance(value, tuple) else (value,))]
    numbers = {each for each in flat if isinstance(each, (int, float)) and not isinstance(each, bool)}
    live = {row.name for row in step.scalars() if row.kind == "host_scalar"}
    assert live == set(step.meta) - {"step"}
    assert {step.meta[name] for name in live} <= numbers


def test_a_number_that_torch_would_miss_is_missed() -> None:
    config = OptimizerConfig(torch.optim.NAdam, {"lr": 0.01})
    trained = Trained(config, "cpu")
    trained.in_torch(batches("cpu"))
    for state in trained.optimizer.state.values():
        del state["mu_product"]
    with pytest.raises(BindError, match=r"state 'mu_product' of parameter '0\.weight' is missing"):
        trained.compiled(batches("cpu"))
    for state in trained.optimizer.state.values():
        state["mu_product"] = torch.ones(3)
    with pytest.raises(BindError, match=r"'mu_product' of parameter '0\.weight': expected a number, got"):
        trained.compiled(batches("cpu"))


@pytest.mark.parametrize("config", CONFIGS[::3], ids=str)
def test_a_failed_check_changes_nothing(config: OptimizerConfig, device: str) -> None:
    trained = Trained(config, device)
    given = batches(device)
    step = compile_train_step(
        trained.model, trained.optimizer, loss_fn=mse, example=given[0], device=device, check_finite=True
    )
    step.train_step(given[0])
    before = trained.values()
    bad = {name: tensor.clone() for name, tensor in given[1].items()}
    bad["x"][0, 0] = float("nan")
    with pytest.raises(DataError, match="skipped whole"):
        step.train_step(bad)
        step.synchronize()  # on CUDA the error comes with the next call that sees it
    assert_same_bits(trained.values(), before)
    step.train_step(given[1])


def test_a_centred_variance_is_not_below_zero(device: str) -> None:
    """In f16 the average of squares is often 0 when the average is not; torch rounds their difference to 0."""
    models: list[torch.nn.Module] = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(torch.nn.Linear(64, 64).to(device, torch.float16))
    ours, theirs = (
        torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5, centered=True, eps=0.01)
        for model in models
    )
    batch = {name: torch.randn(8, 64, device=device).half() for name in ("x", "t")}
    step = compile_train_step(models[0], ours, example=batch, device=device)
    for _ in range(5):
        step.train_step(batch)
        theirs.zero_grad()
        torch.nn.functional.mse_loss(models[1](batch["x"]), batch["t"]).backward()
        theirs.step()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-2, atol=1e-2)


@every_formula
def test_groups_of_one_parameter_are_those_of_torch(config: OptimizerConfig, device: str) -> None:
    """What such a group computes of its numbers is one point, whose results lie where its operands do."""
    given = [{name: value.double() for name, value in batch.items()} for batch in batches(device)]
    ours, theirs = (Trained(config, device) for _ in range(2))
    for trained in (ours, theirs):
        trained.model.double()
        groups = [{"params": [p], "lr": 0.01 * (1 + n)} for n, p in enumerate(trained.model.parameters())]
        trained.optimizer = config.of(groups)
    for group in theirs.optimizer.param_groups:
        group["foreach"] = False  # by foreach, torch computes the rate of ASGD in f32
    ours.compiled(given)
    theirs.in_torch(given)
    for name, value in theirs.values().items():
        torch.testing.assert_close(ours.values()[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("maximize", [False, True])
def test_whether_a_gradient_has_turned_is_said_by_the_product_in_its_own_type(
    maximize: bool, device: str
) -> None:
    """Of two gradients of f16 below 2e-4 it is 0, so that a Rprop's step size stays as it is."""
    gradients = torch.tensor([1e-5, -1e-4, 3e-4, 1e-2, -0.5, 0.0], dtype=torch.float16, device=device)

    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Linear(6, 1, bias=False, device=device, dtype=torch.float16)
        nn.init.zeros_(model.weight)
        return model, torch.optim.Rprop(model.parameters(), maximize=maximize)

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        return (model.weight * batch["x"]).float().sum()

    (ours, optimizer), (theirs, reference) = made(), made()
    batch = {"x": gradients[None]}
    step = compile_train_step(ours, optimizer, loss_fn=loss, example=batch, device=device)
    for sign in (1, 1, -1, -1, 1):
        given = {"x": batch["x"] * sign}
        step.train_step(given)
        reference.zero_grad()
        loss(theirs, given).backward()
        reference.step()
    (own,), (wanted,) = (each.state.values() for each in (optimizer, reference))
    assert len(wanted["step_size"].unique()) == 2
    for name in ("step_size", "prev"):
        torch.testing.assert_close(own[name], wanted[name], rtol=2e-3, atol=0.0)

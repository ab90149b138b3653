"""Updates with one body as one launch: how many there are, the bits of separate launches, and what stays apart."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from costs import Some
from fusion_rules import leave_out
from models import OPTIMIZERS, OptimizerConfig
from oracle import same_bits
from torch import Tensor, nn
from written_optimizers import RIGHT, Config

from aicf_mlir import compile_train_step
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.kernels import segments as limits
from aicf_mlir.optimizers import CLASSES
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.passes.fuse.segments import SMALL
from aicf_mlir.text.parsing import parse_module

Parameters = Iterator[Tensor]
Make = Callable[[Any], torch.optim.Optimizer]

FORMULAS = {row.title for row, rule in CLASSES if issubclass(rule, PointwiseRule)}
RULES = list({config.kind: config for config in OPTIMIZERS if config.kind.__name__ in FORMULAS}.values())
"""One of each, with options."""
SHAPES = ((), (1,), (3, 5), (64,), (17, 9), (1, 1), (4, 3, 2), (130,), (2100,), (7, 1))


class Points(nn.Module):
    """Parameters of these shapes, each with a gradient of its own."""

    def __init__(self, shapes: Any = SHAPES, dtype: torch.dtype = torch.float32):
        super().__init__()
        torch.manual_seed(1)
        self.all = nn.ParameterList([nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes])

    def forward(self, x: Tensor) -> Tensor:
        total = x.sum() * 0
        for p in self.all:
            total = total + torch.tanh(p * x[0].to(p.dtype)).square().sum().to(x.dtype)
        return total


def layers(count: int = 2) -> nn.Module:
    """Weights, biases and norms."""
    torch.manual_seed(3)
    blocks = [nn.Sequential(nn.Linear(3 + n, 4 + n), nn.LayerNorm(4 + n), nn.Tanh()) for n in range(count)]
    return nn.Sequential(nn.Unflatten(0, (2, 3)), *blocks, nn.Linear(3 + count, 2), SquareSum())


class SquareSum(nn.Module):
    """A loss."""

    def forward(self, x: Tensor) -> Tensor:
        return x.square().sum()


def loss(model: Any, batch: Any) -> Tensor:
    return model(batch["x"])


def batch_on(device: str, seed: int = 0) -> dict[str, Tensor]:
    return {"x": torch.randn(6, generator=torch.Generator().manual_seed(seed)).to(device)}


def built(make: Make, device: str = "cpu", model: nn.Module | None = None, **options: Any) -> Any:
    """A step over a fresh model."""
    model = (model or Points()).to(device)
    optimizer = make(list(model.parameters()))
    return (
        model,
        optimizer,
        compile_train_step(
            model, optimizer, loss_fn=loss, example=batch_on(device), device=device, **options
        ),
    )


def kinds(step: Any) -> Counter[str]:
    """How often each op is launched."""
    return Counter(launch.op.data for launch in find_program(parse_module(step.ir("plan"))).launches)


def updating(step: Any) -> Counter[str]:
    """How often each op is launched with a parameter among its results."""
    program = find_program(parse_module(step.ir("plan")))
    return Counter(
        launch.op.data
        for launch in program.launches
        if any(program.slots[name].role.data == "param" for name in launch.writes)
    )


def trained(make: Make, device: str, model: nn.Module | None = None, **options: Any) -> list[Tensor]:
    """Parameters, states and losses after eager steps and replays."""
    model = (model or Points()).to(device)
    _, optimizer, step = built(make, device, model, **options)
    losses = [step.train_step(batch_on(device, seed)).clone() for seed in range(3)]
    step.capture(batch_on(device, 3))
    step.replay(2)
    states = [value for p in model.parameters() for value in optimizer.state[p].values()]
    return [
        *(p.detach().clone() for p in model.parameters()),
        *losses,
        *(s.clone() for s in states if torch.is_tensor(s)),
    ]


def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every map be a launch of its own."""
    leave_out(monkeypatch, "fuse-segments")


def assert_bits_of_separate_launches(
    make: Make,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    model: Callable[[], nn.Module] = Points,
    **options: Any,
) -> None:
    together = trained(make, device, model(), **options)
    with monkeypatch.context() as patched:
        apart(patched)
        separate = trained(make, device, model(), **options)
    assert len(together) == len(separate)
    for one, other in zip(together, separate, strict=True):
        if device == "cpu":
            assert same_bits(one, other)
        else:  # NVRTC contracts products and sums as it sees fit, and not in all texts alike
            torch.testing.assert_close(one, other, rtol=3e-6, atol=3e-7)


def maker(config: OptimizerConfig) -> Make:
    return lambda parameters: config.kind(parameters, **config.options)


@pytest.mark.parametrize("config", RULES, ids=str)
def test_a_formula_is_one_launch_for_all_parameters(config: OptimizerConfig) -> None:
    _, _, step = built(maker(config), model=layers())
    assert updating(step) == {"multi_tensor_map": 1}
    assert kinds(step)["map"] == 1  # what the group counts


@pytest.mark.parametrize("config", RULES, ids=str)
def test_a_formula_has_the_bits_of_separate_launches(
    config: OptimizerConfig, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_bits_of_separate_launches(maker(config), device, monkeypatch)


WRITTEN = ("lion", "warmed", "foreach", "plain-adam")
"""Those whose step is pointwise."""


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_optimizer_does_not_grow_with_the_number_of_parameters(name: str) -> None:
    few, many = (built(RIGHT[name], model=layers(count))[2] for count in (1, 3))
    assert updating(few) == updating(many)
    assert updating(few).total() <= 2  # the first parameter may compute again what it shares with the others
    maps = [kinds(step)["map"] + kinds(step)["multi_tensor_map"] for step in (few, many)]
    assert maps[1] <= maps[0] + 1  # counters of steps, a launch for each score of parameters


@pytest.mark.parametrize("name", ["lion", "adafactor", "lamb", "foreach", "adan"])
def test_a_written_optimizer_has_the_bits_of_separate_launches(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_bits_of_separate_launches(RIGHT[name], device, monkeypatch, lambda: Points(SHAPES[1::2]))


def rmsprop(parameters: Any, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=1e-2, **options)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


CLIPPED: dict[str, tuple[Make, dict[str, Any]]] = {
    "adamw, norm": (adamw, {"clip_grad_norm": 0.5}),
    "adamw, value": (adamw, {"clip_grad_value": 0.1}),
    "adamw, both": (adamw, {"clip_grad_norm": 0.5, "clip_grad_value": 0.1}),
    "rmsprop, norm": (rmsprop, {"clip_grad_norm": 0.5}),
    "rmsprop, averages": (rmsprop, {"ema": 0.9}),
    "rmsprop, scaled": (rmsprop, {"loss_scale": 8.0}),
    "rmsprop, checked": (rmsprop, {"check_finite": True}),
}


@pytest.mark.parametrize("name", CLIPPED)
def test_what_stands_before_and_behind_the_updates_does_not_grow(name: str) -> None:
    make, options = CLIPPED[name]
    few, many = (built(make, model=layers(count), **options)[2] for count in (1, 3))
    pointwise = [
        sum(kinds(step)[op] for op in ("map", "multi_tensor_map", "mul", "copy")) for step in (few, many)
    ]
    assert pointwise[0] == pointwise[1] <= 6


@pytest.mark.parametrize("name", CLIPPED)
def test_with_clipping_and_the_like_the_bits_are_those_of_separate_launches(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, options = CLIPPED[name]
    assert_bits_of_separate_launches(make, device, monkeypatch, **options)


@pytest.mark.parametrize("seed", range(6))
def test_random_shapes_and_types(seed: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Element types are never mixed in a launch; the bits are those of separate ones, whatever the shapes are."""
    rng = random.Random(seed)
    shapes = [tuple(rng.choice([1, 2, 5, 16, 33, 300]) for _ in range(rng.randint(0, 3))) for _ in range(10)]
    types = [torch.float32, torch.float64, torch.bfloat16]

    def model() -> nn.Module:
        made, draw = Points(shapes), random.Random(seed)
        for p in made.all:
            p.data = p.data.to(draw.choice(types))
        return made

    config = rng.choice(RULES)
    assert_bits_of_separate_launches(maker(config), device, monkeypatch, model)
    _, _, step = built(maker(config), device, model())
    program = find_program(parse_module(step.ir("plan")))
    launches = [launch for launch in program.launches if launch.op.data == "multi_tensor_map"]
    assert launches
    for launch in launches:
        slots = [program.slots[name] for name in launch.writes]
        assert len({slot.spec[0] for slot in slots if slot.role.data == "param"}) <= 1


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.other(torch.tanh(self.one(x.view(2, 3)))).square().sum()


def test_a_parameter_of_two_layers_is_updated_once(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_bits_of_separate_launches(rmsprop, device, monkeypatch, Tied)
    model, _, step = built(rmsprop, device, Tied())
    other = Tied().to(device)
    theirs = rmsprop(list(other.parameters()))
    for seed in range(5):
        given = batch_on(device, seed)
        step.train_step(given)
        theirs.zero_grad()
        other(given["x"]).backward()
        theirs.step()
    for ours, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_a_parameter_without_elements(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_bits_of_separate_launches(
        rmsprop, device, monkeypatch, lambda: Points([(3, 5), (0, 4), (7,), (0,)])
    )


def test_groups_share_a_launch_and_keep_their_numbers(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rates of two groups are operands of the segments: a change of one of them is followed."""

    def make(parameters: Any) -> torch.optim.Optimizer:
        return rmsprop([{"params": parameters[::2]}, {"params": parameters[1::2], "lr": 0.1}])

    assert_bits_of_separate_launches(make, device, monkeypatch)
    model, optimizer, step = built(make, device)
    assert kinds(step)["multi_tensor_map"] <= 2
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.param_groups[1]["lr"] = 0.0
    step.train_step(batch_on(device))
    moved = [not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True)]
    assert moved == [number % 2 == 0 for number in range(len(SHAPES))]


def test_more_tensors_than_a_launch_takes_are_several(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(rmsprop, device)
    monkeypatch.setattr("aicf_mlir.passes.fuse.segments.MOST_ADDRESSES", 40)
    _, _, step = built(rmsprop, device)
    launches = find_program(parse_module(step.ir("plan"))).launches
    sizes = [len(launch.touched) for launch in launches if launch.op.data == "multi_tensor_map"]
    assert len(sizes) > 1
    assert all(size <= 40 for size in sizes)
    assert limits.MOST_ADDRESSES * 8 <= 32_764 - 16  # workspace and status come beside the table
    assert all(same_bits(one, other) for one, other in zip(trained(rmsprop, device), whole, strict=True))


def test_a_certificate_holds(device: str, some: Some) -> None:
    """The launch against its ops in the interpreter, replays against eager steps, with poisoned temporaries."""
    for make, options in some([(adamw, {"clip_grad_norm": 0.5}), (rmsprop, {}), (RIGHT["lion"], {})]):
        _, _, step = built(make, device, **options)
        step.train_step(batch_on(device))
        step.capture(batch_on(device), verify="bitwise")


def deep() -> nn.Module:
    """Eight layers, whose gradients come one after the other."""
    torch.manual_seed(4)
    return nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(128, 128), nn.Tanh())))


@pytest.mark.parametrize(
    ("make", "more"),
    [(rmsprop, 0), (RIGHT["lion"], 0), (adamw, 0), (RIGHT["lamb"], 2 * SMALL)],
    ids=["rmsprop", "lion", "adamw", "lamb"],
)
def test_memory_is_that_of_separate_launches(
    make: Config, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LAMB has a direction of each parameter, of which it needs the norm: those of all weights never live together."""

    options: dict[str, Any] = {"clip_grad_norm": 1.0} if make is adamw else {}

    def peak() -> int:
        model = deep()
        step = compile_train_step(
            model,
            make(list(model.parameters())),
            loss_fn=lambda model, batch: model(batch["x"]).square().sum(),
            example={"x": torch.randn(4, 128)},
            device="cpu",
            **options,
        )
        assert (
            make is not adamw or is_apart or (kinds(step)["multi_tensor_map"], kinds(step)["mul"]) == (1, 0)
        )
        return step.memory_report().peak

    is_apart = False
    together = peak()
    is_apart = True
    apart(monkeypatch)
    assert together <= peak() + more


def test_a_failing_check_leaves_parameters_and_states(device: str) -> None:
    """The launch of all updates is skipped, in place as it is: nothing is half done, and the next step goes on."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).to(device)
    optimizer = rmsprop(list(model.parameters()))
    good = {"x": torch.randn(4, 6, device=device), "t": torch.tensor([0, 1, 2, 0], device=device)}
    step = compile_train_step(
        model,
        optimizer,
        loss_fn=lambda model, batch: nn.functional.cross_entropy(model(batch["x"]), batch["t"]),
        example=good,
        device=device,
    )
    assert kinds(step)["copy"] <= 1  # of the counters; the updates are written where they belong
    step.train_step(good)
    states = [value for p in model.parameters() for value in optimizer.state[p].values()]
    before = [t.detach().clone() for t in (*model.parameters(), *states)]
    with pytest.raises(IndexError):
        step.train_step({**good, "t": torch.tensor([0, 1, 7, 0], device=device)})
        step.synchronize()  # a GPU says it when the host waits
    after = [t.detach().clone() for t in (*model.parameters(), *states)]
    assert all(same_bits(one, other) for one, other in zip(before, after, strict=True))
    step.train_step(good)
    assert not any(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=False))

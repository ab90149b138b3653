"""Batches as DataLoaders make them, and dataclasses, nested in each other; each trains as its flat one does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from models import mlp, values
from oracle import assert_same_bits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from aicf_mlir import BindError, TraceError, compile_eval_step, compile_step, compile_train_step, trace
from aicf_mlir.frontend.structure import DEEPEST, mapped
from aicf_mlir.ir.locations import SourceLocation
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.tools.aicf_check import check
from aicf_mlir.tools.user_function import UserStep

D = 6


class Pair(NamedTuple):
    """A batch as a named tuple."""

    x: torch.Tensor
    t: torch.Tensor


@dataclass
class Example:
    """A batch as a dataclass, with what a class may have besides."""

    x: torch.Tensor
    mask: torch.Tensor | None = None
    t: torch.Tensor = field(kw_only=True)
    scale: ClassVar[float] = 1.0

    @property
    def both(self) -> tuple[torch.Tensor, torch.Tensor]:
        """x and t."""
        assert self.mask is None
        return self.x * self.scale, self.t


@dataclass(frozen=True, slots=True)
class Frozen:
    """A batch that its own methods would not make again."""

    x: torch.Tensor
    t: torch.Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", self.x + 0)


def tensors(size: int, device: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(size, D, generator=generator).to(device) for _ in range(2))  # pyright: ignore[reportReturnType]


NESTED: dict[str, tuple[Callable[..., Any], Callable[[Any], tuple[Any, Any]], list[str]]] = {
    "tuple": (lambda x, t: (x, t), lambda b: b, ["0", "1"]),
    "list": (lambda x, t: [x, t], lambda b: b, ["0", "1"]),
    "named tuple": (Pair, lambda b: (b.x, b.t), ["0", "1"]),
    "dataclass": (lambda x, t: Example(x, t=t), lambda b: b.both, ["x", "t"]),
    "frozen dataclass": (Frozen, lambda b: (b.x, b.t), ["x", "t"]),
    "dataclass in a tuple": (lambda x, t: (Frozen(x, t), None), lambda b: (b[0].x, b[0].t), ["0.x", "0.t"]),
    "nothing": (
        lambda x, t: {"x": x, "mask": None, "t": t},
        lambda b: (b["x"] if b["mask"] is None else b["t"], b["t"]),
        ["x", "t"],
    ),
    "dictionary in a dictionary": (
        lambda x, t: {"in": {"ids": x}, "t": t},
        lambda b: (b["in"]["ids"], b["t"]),
        ["in.ids", "t"],
    ),
    "dictionary in a list": (lambda x, t: [{"ids": x}, t], lambda b: (b[0]["ids"], b[1]), ["0.ids", "1"]),
    "tuple in a list": (lambda x, t: [(x, t), t], lambda b: b[0], ["0.0", "0.1", "1"]),
    "ordered": (
        lambda x, t: OrderedDict(a=[x, [t]], b={}),
        lambda b: (b["a"][0], b["a"][1][0]),
        ["a.0", "a.1.0"],
    ),
}
"""How a batch is made of x and t, how a loss takes it apart, and the names of its tensors."""


def made(
    device: str, loss_fn: Any, example: Any, compile: Callable[..., Any] = compile_train_step
) -> tuple[nn.Module, torch.optim.Optimizer, CompiledTrainStep]:
    model = mlp(D, 9, D).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = (model,) if compile is compile_eval_step else (model, optimizer)
    return model, optimizer, compile(*first, loss_fn=loss_fn, example=example, device=device)


def flat(device: str) -> tuple[nn.Module, torch.optim.Optimizer, CompiledTrainStep]:
    x, t = tensors(5, device)
    return made(device, None, {"x": x, "t": t})


@pytest.mark.parametrize("name", NESTED)
def test_a_nested_batch_trains_as_a_flat_one(name: str, device: str) -> None:
    make, apart, names = NESTED[name]
    batches = [make(*tensors(5, device, seed)) for seed in range(3)]
    kind = type(batches[0]) if name != "ordered" else dict

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        assert issubclass(type(batch), kind)
        x, t = apart(batch)
        return F.mse_loss(model(x), t)

    model, optimizer, step = made(device, loss, [batches[0]])
    other, its, plain = flat(device)
    for number in range(3):
        x, t = tensors(5, device, number)
        ours = step.train_step(batches[number])
        assert_same_bits({"loss": ours}, {"loss": plain.train_step({"x": x, "t": t})})
    step.warmup(batches[1])
    step.capture(batches[1])
    ours = step.replay(2, inputs=batches[2])
    x, t = tensors(5, device, 2)
    plain.train_step({"x": x, "t": t})
    assert_same_bits({"loss": ours}, {"loss": plain.train_step({"x": x, "t": t})})
    assert_same_bits(values(model, optimizer), values(other, its))
    assert [n for n in names if f'aicf.role = "input", aicf.name = "{n}"' in step.ir("nn")] == names
    step.recompile()
    step.train_step(batches[0])


def autoencoded(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(x), x)


def test_one_tensor_is_a_batch(device: str) -> None:
    batches = [tensors(5, device, seed)[0] for seed in range(3)]
    model, optimizer, step = made(device, autoencoded, batches[0])
    other, its, plain = made(device, lambda model, batch: autoencoded(model, batch["x"]), {"x": batches[0]})
    for x in batches:
        assert_same_bits({"loss": step.train_step(x)}, {"loss": plain.train_step({"x": x})})
    step.capture(batches[0])
    ours = step.replay(inputs=batches[1])
    assert_same_bits({"loss": ours}, {"loss": plain.train_step({"x": batches[1]})})
    assert_same_bits(values(model, optimizer), values(other, its))
    step.recompile()
    assert step.inputs.shape == batches[0].shape
    for batch, found in (((batches[0],), "a tuple of 1"), ({"x": batches[0]}, r"a dict with \['x'\]")):
        with pytest.raises(BindError, match=f"the batch is {found}, compiled for one tensor"):
            step.train_step(batch)


def test_one_tensor_is_no_list_of_batches() -> None:
    model = mlp(D, D)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(BindError, match=r"a list of tensors is one batch: make the batch a tuple, \(x,\)"):
        compile_train_step(model, sgd, loss_fn=autoencoded, example=X, accumulate=2, device="cpu")


def test_the_batches_of_a_data_loader(device: str) -> None:
    x, t = tensors(12, device)
    model, optimizer, step = made(device, None, next(iter(DataLoader(TensorDataset(x, t), batch_size=4))))
    other, its, plain = made(device, None, {"x": x[:4], "t": t[:4]})
    for batch in DataLoader(TensorDataset(x, t), batch_size=4):
        plain.train_step({"x": batch[0], "t": batch[1]})
        step.train_step(batch)
    assert_same_bits(values(model, optimizer), values(other, its))


def test_losses_of_torch_and_evaluation_take_pairs(device: str) -> None:
    x, t = tensors(5, device)
    model, _, step = made(device, nn.L1Loss(), (x, t), compile_eval_step)
    torch.testing.assert_close(step.train_step((x, t)), F.l1_loss(model(x), t).detach())


def test_a_list_of_batches_is_several_shape_groups(device: str) -> None:
    groups: list[Any] = [tensors(size, device) for size in (3, 5)]
    _, _, step = made(device, None, groups)
    for group in groups:
        step.train_step(group)
    with pytest.raises(BindError, match=r"no shape group for 0 \[4, 6\], 1 \[4, 6\]; compiled: 0 \[3, 6\]"):
        step.train_step(tensors(4, device))
    dictionaries = [{"x": x, "t": t} for x, t in groups]
    _, _, step = made(device, None, tuple(dictionaries))
    for group in dictionaries:
        step.train_step(group)


def test_the_keys_may_come_in_any_order(device: str) -> None:
    x, t = tensors(5, device)
    loss = lambda m, b: F.mse_loss(m(b["in"]["x"]), b["in"]["t"])  # noqa: E731
    _, _, step = made(device, loss, {"in": {"x": x, "t": t}})
    expected = step.eval_step if hasattr(step, "eval_step") else step.train_step
    before = step.snapshot()
    first = expected({"in": {"x": x, "t": t}})
    step.restore(before)
    assert_same_bits({"loss": expected({"in": {"t": t, "x": x}})}, {"loss": first})


ORDERED: dict[str, tuple[Any, Any, Callable[[Any], Sequence[torch.Tensor]]]] = {
    "values": ({"x": 1, "t": 2}, {"t": 2, "x": 1}, lambda b: list(b.values())),
    "nested": (
        [{"a": {"x": 1, "t": 2}, "c": 3}, 4],
        [{"c": 3, "a": {"t": 2, "x": 1}}, 4],
        lambda b: [b[0]["a"][key] for key in b[0]["a"]],
    ),
}
"""A batch, the same in another order, and what reads the order."""


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("name", ORDERED)
def test_an_order_that_the_step_depends_on(name: str, reads: bool, device: str) -> None:
    """Keys in another order are refused if the loss reads their order, and nothing changes; else the step is traced once more."""
    first, other, ordered = ORDERED[name]
    given = {number: torch.full((5, D), float(number), device=device) for number in range(1, 5)}
    first, other = (mapped(given.__getitem__, batch) for batch in (first, other))
    inside = (lambda b: b) if name == "values" else (lambda b: b[0]["a"])
    traced: list[int] = []

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        traced.append(1)
        x, t = ordered(batch) if reads else (inside(batch)["x"], inside(batch)["t"])
        return F.mse_loss(model(x), 2 * t)

    model, optimizer, step = made(device, loss, first)
    step.train_step(first)
    before = {key: value.clone() for key, value in values(model, optimizer).items()}
    if reads:
        for _ in range(2):
            with pytest.raises(
                BindError, match=r"the keys of the batch are in another order.* depends on it"
            ):
                step.train_step(other)
        assert_same_bits(values(model, optimizer), before)
        step.capture(first)
        with pytest.raises(BindError, match="in another order"):
            step.capture(other)
    else:
        step.train_step(other)
        count = len(traced)
        step.train_step(other)
        step.capture(other)
        assert len(traced) == count
    step.train_step(first)


def test_an_order_that_cannot_be_traced() -> None:
    batch = {"x": torch.zeros(5, D), "t": torch.zeros(5, D + 1)}
    model = nn.Linear(D, D + 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = lambda m, b: F.mse_loss(m(next(iter(b.values()))), b["t"])  # noqa: E731
    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch)
    with pytest.raises(BindError, match=r"in another order.*test_structure\.py"):
        step.train_step({"t": batch["t"], "x": batch["x"]})
    step.train_step(batch)


def test_two_examples_in_two_orders(device: str) -> None:
    """Neither order holds for both."""
    one, two = ({"x": x, "t": t} for x, t in (tensors(3, device), tensors(5, device)))
    loss = lambda m, b: F.mse_loss(m(next(iter(b.values()))), b["t"])  # noqa: E731
    _, _, step = made(device, loss, [one, {"t": two["t"], "x": two["x"]}])
    for batch in (one, two, {"t": one["t"], "x": one["x"]}):
        with pytest.raises(BindError, match="in another order"):
            step.train_step(batch)


def test_the_order_that_a_loop_body_reads(device: str) -> None:
    model = mlp(D, 9, D).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, t = tensors(5, device)

    def body(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        optimizer.zero_grad()
        first, second = batch.values()
        loss = F.mse_loss(model(first), second)
        loss.backward()
        optimizer.step()
        return loss

    step = compile_step(body, example={"x": x, "t": t}, device=device)
    step({"x": x, "t": t})
    with pytest.raises(BindError, match="in another order"):
        step({"t": t, "x": x})


X = torch.zeros(5, D)

OTHERWISE: dict[str, tuple[Any, str]] = {
    "list for a tuple": (
        [{"a": X, "b": [X]}, X],
        "step: the batch is a list of 2, compiled for a tuple of 2",
    ),
    "one too few": (({"a": X, "b": [X]},), "the batch is a tuple of 1, compiled for a tuple of 2"),
    "named": (Pair(X, X), "the batch is a Pair of 2, compiled for a tuple of 2"),
    "a dictionary": ({"x": X, "t": X}, r"the batch is a dict with \['x', 't'\], compiled for a tuple of 2"),
    "a tensor": (X, "the batch is a Tensor, compiled for a tuple of 2"),
    "a dataclass": (Frozen(X, X), "the batch is a Frozen of 2, compiled for a tuple of 2"),
    "nothing": ((None, X), r"the batch at '0' is a NoneType, compiled for a dict with"),
    "nothing for a tensor": (
        ({"a": None, "b": [X]}, X),
        r"input '0\.a': expected a torch\.Tensor, got NoneType",
    ),
    "nothing for a list": (
        ({"a": X, "b": None}, X),
        r"the batch at '0\.b' is a NoneType, compiled for a list",
    ),
    "a tensor inside": ((X, X), r"the batch at '0' is a Tensor, compiled for a dict with \['a', 'b'\]"),
    "another key": (
        ({"a": X, "c": [X]}, X),
        r"at '0' is a dict with \['a', 'c'\], compiled for .*\['a', 'b'\]",
    ),
    "a key more": (({"a": X, "b": [X], "c": X}, X), r"at '0' is a dict with \['a', 'b', 'c'\]"),
    "deep": (({"a": X, "b": [X, X]}, X), r"at '0\.b' is a list of 2, compiled for a list of 1"),
    "no tensor": (({"a": X, "b": [3]}, X), r"input '0\.b\.0': expected a torch\.Tensor, got int"),
    "a list for a tensor": (({"a": [X], "b": [X]}, X), r"input '0\.a': expected a torch\.Tensor, got list"),
    "a shape": (({"a": X, "b": [X[:3]]}, X), r"input '0\.b\.0': expected float32\[5, 6\]"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_batch_that_is_nested_otherwise_changes_nothing(name: str) -> None:
    batch, message = OTHERWISE[name]
    good = ({"a": X + 1, "b": [X]}, X + 2)
    model, optimizer, step = made("cpu", lambda m, b: F.mse_loss(m(b[0]["a"]) + b[0]["b"][0], b[1]), good)
    step.train_step(good)
    before = {key: value.clone() for key, value in values(model, optimizer).items()}
    for call in (step.train_step, step.warmup, step.capture):
        with pytest.raises(BindError, match=message):
            call(batch)
    assert_same_bits(values(model, optimizer), before)


def endless() -> list[Any]:
    """A list that contains itself."""
    batch: list[Any] = [X]
    batch.append(batch)
    return batch


WRONG: dict[str, tuple[Any, str]] = {
    "a name twice": ({"a.b": X, "a": {"b": X}}, "two entries of the batch would be called 'a.b'; rename"),
    "a number as a key": ((X, {0: X}), "names of batch entries must be strings that are not empty, got 0"),
    "a text": ((X, "t"), "batch entry '1' must be a torch.Tensor, got str"),
    "nothing": ((None, None), "the batch is empty"),
    "a class": (Example, "the batch must be .*, got type"),
    "empty": ((), "the batch is empty; expected a dictionary .* a dataclass, a tuple or a list of tensors"),
    "endless": (endless(), f"the batch is nested more than {DEEPEST} levels deep"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_batch(name: str) -> None:
    batch, message = WRONG[name]
    with pytest.raises(TraceError, match=message):
        trace(mlp(D, D), None, batch)


def test_what_was_none_stays_none() -> None:
    _, _, step = made("cpu", lambda m, b: m(b.x).mean(), Example(X, t=X))
    with pytest.raises(BindError, match="the batch at 'mask' is a Tensor, compiled for None"):
        step.train_step(Example(X, X, t=X))


def test_examples_must_be_nested_alike() -> None:
    examples: list[Any] = [(X, X), [X, X]]
    with pytest.raises(
        BindError, match="example 1 is a list of 2, example 0 is a tuple of 2; all must be nested"
    ):
        made("cpu", None, examples)
    made("cpu", None, [{"x": X, "t": X}, {"t": X[:3], "x": X[:3]}])


def test_a_missing_key_says_which_there_are() -> None:
    with pytest.raises(TraceError, match=r"batch\['idz'\], but the batch has 'ids'"):
        made("cpu", lambda m, b: m(b[0]["idz"]).mean(), ({"ids": X}, X))


def test_aicf_check_takes_them() -> None:
    model = mlp(D, D)
    user = UserStep(
        model, [(X + 1, X)], torch.optim.Adam(model.parameters()), first_pair, SourceLocation("u.py", 1)
    )
    found = check(user, "cpu", 2)
    assert found.equal, str(found)


def first_pair(model: Any, batch: Any) -> torch.Tensor:
    """A loss of a batch of pairs."""
    (x, t), *_ = batch
    return F.mse_loss(model(x), t)

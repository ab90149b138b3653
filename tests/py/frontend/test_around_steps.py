"""A compiled step inside what no compiled step runs, copied, or given what it cannot take: an error, and nothing has changed."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from global_worlds import World
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from aicf_mlir import _C, compile_eval_step, compile_step, compile_train_step
from aicf_mlir.errors import BindError, GuardError, StateError, TraceError
from aicf_mlir.runtime import torch_words

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript's own


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def step(world: World) -> Any:
    batch = world.batch(0)
    step = compile_train_step(
        world.model, world.optimizer, loss_fn=World.loss_fn, example=batch, device="cpu"
    )
    step.train_step(batch)
    step.capture(batch)
    return step


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def same(t: torch.Tensor) -> torch.Tensor:
    return t


COPIES: dict[str, Callable[[Any], object]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "torch.save": lambda step: torch.save(step, io.BytesIO()),
    "its numbers": lambda step: copy.deepcopy(step.meta),
    "a snapshot": lambda step: copy.deepcopy(step.snapshot()),
}


@pytest.mark.parametrize("how", COPIES)
def test_a_step_is_not_copied(step: Any, how: str) -> None:
    with pytest.raises(StateError, match="cannot be copied or pickled"):
        COPIES[how](step)


def test_model_and_optimizer_of_a_step_are_copied(step: Any, world: World) -> None:
    model, optimizer = copy.deepcopy((world.model, world.optimizer))
    assert not any(
        p.data_ptr() == q.data_ptr()
        for p, q in zip(model.parameters(), world.model.parameters(), strict=True)
    )
    pickle.loads(pickle.dumps(optimizer))


TRANSFORMS: dict[str, Callable[[Callable[..., Any], Any], object]] = {
    "grad": lambda call, batch: torch.func.grad(lambda x: call({**batch, "x": x}))(batch["x"]),
    "grad of another": lambda call, batch: torch.func.grad(lambda x: call(batch))(torch.ones(())),
    "vmap": lambda call, batch: torch.func.vmap(lambda x: call({**batch, "x": x}))(batch["x"][None]),
    "jvp": lambda call, batch: torch.func.jvp(lambda x: call(batch), (batch["x"],), (batch["x"],)),
    "functionalize": lambda call, batch: torch.func.functionalize(lambda x: call(batch))(batch["x"]),
}


@pytest.mark.parametrize("replayed", [False, True], ids=["train_step", "replay"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_refused(step: Any, world: World, name: str, replayed: bool) -> None:
    before = world.values()
    call = (lambda batch: step.replay(inputs=batch)) if replayed else step.train_step
    with pytest.raises(GuardError, match=r"inside (a transform|forward-mode|hooks on saved)"):
        TRANSFORMS[name](call, world.batch(1))
    assert all(torch.equal(before[key], value) for key, value in world.values().items())


@pytest.mark.parametrize("replayed", [False, True], ids=["train_step", "replay"])
def test_a_dual_level_is_refused(step: Any, world: World, replayed: bool) -> None:
    with forward_ad.dual_level(), pytest.raises(GuardError, match="forward-mode differentiation"):
        step.replay() if replayed else step.train_step(world.batch(1))


@pytest.mark.parametrize(
    "around",
    [
        Functions,
        Dispatch,
        lambda: saved_tensors_hooks(same, same),
        forward_ad.dual_level,
        FakeTensorMode,
    ],
)
def test_nothing_is_compiled_inside(around: Any) -> None:
    other = World()
    batch = other.batch(0)
    with around():
        for compiled in (
            lambda: compile_train_step(other.model, other.optimizer, loss_fn=World.loss_fn, example=batch),
            lambda: compile_step(other.body, example=batch),
            lambda: compile_eval_step(other.model, loss_fn=World.loss_fn, example=batch),
        ):
            with pytest.raises(TraceError, match="compiled inside"):
                compiled()


def test_nothing_is_compiled_with_global_hooks() -> None:
    other = World()
    handle = modules.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.raises(TraceError, match="global forward_hooks"):
            compile_train_step(other.model, other.optimizer, loss_fn=World.loss_fn, example=other.batch(0))
    finally:
        handle.remove()


def test_a_batch_that_requires_a_gradient_is_refused() -> None:
    net = torch.nn.Linear(4, 4)
    step = compile_train_step(net, torch.optim.SGD(net.parameters(), lr=0.1), B=4, D=4, device="cpu")
    target, one = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
    step.train_step({"x": target, "t": target})
    step.capture()
    before = net.weight.detach().clone()
    for x in (net.weight, one, one * 2.0, net.weight.t(), net.weight[:]):
        for call in (
            lambda x=x: step.train_step({"x": x, "t": target}),
            lambda x=x: step.replay(inputs={"x": x, "t": target}),
        ):
            with pytest.raises(BindError, match=r"input 'x' requires a gradient.*x\.detach"):
                call()
    assert torch.equal(before, net.weight)
    mirror, wanted = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    for each in (mirror, wanted):
        each.load_state_dict(net.state_dict())
    loss = torch.nn.functional.mse_loss(wanted(wanted.weight.detach()), target)
    loss.backward()
    step.train_step({"x": net.weight.detach(), "t": target})
    torch.testing.assert_close(net.weight, wanted.weight - 0.1 * wanted.weight.grad)  # pyright: ignore


def test_an_evaluation_takes_a_batch_with_a_graph() -> None:
    net = torch.nn.Linear(4, 4)
    step = compile_eval_step(net, B=4, D=4, device="cpu")
    x = torch.ones(4, 4, requires_grad=True) * 2.0
    torch.testing.assert_close(
        step.eval_step({"x": x, "t": x}), torch.nn.functional.mse_loss(net(x), x).detach()
    )


@pytest.mark.parametrize(
    "make",
    [
        torch.jit.script,
        lambda m: torch.jit.trace(m, torch.ones(1, 4)),
        lambda m: torch.nn.Sequential(torch.jit.script(m)),
    ],
)
def test_torchscript_is_refused(make: Any) -> None:
    net = make(torch.nn.Linear(4, 4))
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)

    def body(batch: Any) -> None:
        sgd.zero_grad()
        (net(batch["x"]) - batch["t"]).square().mean().backward()
        sgd.step()

    batch = {"x": torch.ones(2, 4), "t": torch.ones(2, 4)}
    for compiled in (
        lambda: compile_train_step(net, sgd, example=batch),
        lambda: compile_eval_step(net, example=batch),
        lambda: compile_step(body, example=batch),
    ):
        with pytest.raises(TraceError, match="TorchScript"):
            compiled()


def test_torch_swaps_no_tensor_of_a_step(step: Any, world: World) -> None:
    with pytest.raises(RuntimeError, match=r"[Ss]wap"):
        torch.utils.swap_tensors(world.model.first.weight, torch.nn.Parameter(torch.ones(4, 4)))
    step.train_step(world.batch(1))


def test_the_words_of_this_torch_are_found() -> None:
    assert frozenset(torch_words.STANDS_FOR) == torch_words.SEEN


def test_words_that_cannot_be_read_are_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_words, "SEEN", frozenset())
    other = World()
    step = compile_train_step(
        other.model, other.optimizer, loss_fn=World.loss_fn, example=other.batch(0), device="cpu"
    )
    batch = other.batch(1)
    step.train_step(batch)
    for around in (TorchDispatchMode, TorchFunctionMode, lambda: saved_tensors_hooks(same, same)):
        with around(), pytest.raises(GuardError, match="called inside"):
            step.train_step(batch)
    step.train_step(batch)
    assert vars(step)["_changed"]() == -1


def test_each_thing_of_the_watch_is_seen_and_accepted() -> None:
    def function(x: float = 1.0, *, y: float = 2.0) -> float:
        return x + y

    class Kind:
        pass

    value, handle = Kind(), _C.Watch()
    handle.add_functions([function])
    handle.add_types([Kind])
    handle.add_instances([value])
    handle.add_word(torch.get_num_threads, None)
    for index, change in enumerate(
        (
            lambda: setattr(function, "__defaults__", (3.0,)),
            lambda: setattr(Kind, "note", 1),
            lambda: setattr(value, "__dict__", {"note": 2}),
        )
    ):
        assert handle.changed() == -1
        change()
        assert handle.changed() == index
        handle.accept(index)
    assert handle.changed() == -1
    for wrong in (
        lambda: handle.add_functions([len]),
        lambda: handle.add_types([1]),
        lambda: handle.add_context(3),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError, match="words of torch"):
        handle.add_torch_words([99])

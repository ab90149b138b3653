"""What the body of a training loop cannot do in a compiled step: refused by name, with the line, and nothing has changed."""
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aicf_mlir import TraceError, compile_step


class Own(torch.optim.Optimizer):
    """No rule describes it."""

    def __init__(self, params: Any):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(group["lr"] * p.grad.sign())


model = nn.Linear(3, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(opt, 5)
other = nn.Linear(3, 2)
second = torch.optim.Adam(other.parameters())
own = Own(other.parameters())
again = torch.optim.Adam(model.parameters())
hidden = {"made": lambda: torch.optim.SGD(vars(nn.Module)["parameters"](model), lr=0.1)}


def loss_of(batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def reads_lr(batch: Any) -> None:
    opt.zero_grad()
    (loss_of(batch) * opt.param_groups[0]["lr"]).backward()
    opt.step()


def other_entries(batch: Any) -> None:
    opt.zero_grad()
    loss_of(batch).backward()
    opt.state_dict()
    opt.step()


def last_lr(batch: Any) -> None:
    opt.zero_grad()
    (loss_of(batch) * scheduler.get_last_lr()[0]).backward()
    opt.step()


def rate_before_its_scheduler(batch: Any) -> Any:
    trained(batch)
    rate = scheduler.get_last_lr()[0]
    scheduler.step()
    return rate


def decides_by_a_rate(batch: Any) -> Any:
    if opt.param_groups[0]["lr"] > 0:
        trained(batch)


def scheduler_first(batch: Any) -> None:
    opt.zero_grad()
    loss_of(batch).backward()
    scheduler.step()
    opt.step()


def closure_without_backward(batch: Any) -> None:
    opt.step(lambda: loss_of(batch))


def never_zeroed(batch: Any) -> None:
    loss_of(batch).backward()
    opt.step()


def no_backward(batch: Any) -> Any:
    opt.zero_grad()
    return loss_of(batch)


def no_step(batch: Any) -> Any:
    opt.zero_grad()
    loss_of(batch).backward()


def by_hand(batch: Any) -> None:
    opt.zero_grad()
    loss_of(batch).backward()
    with torch.no_grad():
        for p in model.parameters():
            assert p.grad is not None
            p -= 0.1 * p.grad


def step_without_gradients(batch: Any) -> None:
    opt.zero_grad()
    opt.step()
    loss_of(batch).backward()


def no_scalar(batch: Any) -> None:
    opt.zero_grad()
    model(batch["x"]).backward()
    opt.step()


def no_parameter(batch: Any) -> None:
    model.zero_grad()
    batch["x"].mean().backward()
    opt.step()


def gradient_of_another(batch: Any) -> None:
    torch.autograd.grad(loss_of(batch), list(other.parameters()))


def same_parameters_twice(batch: Any) -> None:
    opt.zero_grad()
    loss_of(batch).backward()
    opt.step()
    again.step()


def own_that_is_not_stepped(batch: Any) -> None:
    opt.zero_grad()
    if batch["x"].shape[0] == 999:
        own.step()
    (loss_of(batch) + other(batch["x"]).mean()).backward()
    opt.step()


def made_in_the_body(batch: Any) -> None:
    opt.zero_grad()
    loss_of(batch).backward()
    hidden["made"]().step()


def left_frozen(batch: Any) -> None:
    opt.zero_grad()
    loss_of(batch).backward()
    opt.step()
    model.weight.requires_grad_(False)


def writes_before_backward(batch: Any) -> None:
    opt.zero_grad()
    loss = loss_of(batch)
    with torch.no_grad():
        model.weight.clamp_(-1, 1)
    loss.backward()
    opt.step()


def writes_to_a_result(batch: Any) -> None:
    opt.zero_grad()
    y = model(batch["x"])
    y.data.mul_(2)
    F.mse_loss(y, batch["t"]).backward()
    opt.step()


def ties_by_data(batch: Any) -> None:
    trained(batch)
    other.weight.data = model.weight.data


def data_of_another_shape(batch: Any) -> None:
    trained(batch)
    model.weight.data = model.weight.data[:1].clone()


def data_that_changes_later(batch: Any) -> None:
    trained(batch)
    kept = model.weight.data.clone()
    model.weight.data = kept
    kept.zero_()


class Counted:
    """What a body might keep beside the model."""

    def __init__(self) -> None:
        self.calls = 0
        self.last: Any = None
        self.is_first = True


history: list[Any] = []
numbers: dict[str, Any] = {"calls": 0}
counted, counted_again = Counted(), Counted()
seen: set[int] = set()


def trained(batch: Any) -> torch.Tensor:
    opt.zero_grad()
    loss = loss_of(batch)
    loss.backward()
    opt.step()
    return loss


def returns_a_time(batch: Any) -> Any:
    return trained(batch), time.perf_counter()


def returns_an_object(batch: Any) -> Any:
    trained(batch)
    return counted


def reads_its_log(batch: Any) -> Any:
    history.append(trained(batch).item())
    return sum(history) / len(history)


def keeps_an_object(batch: Any) -> None:
    trained(batch)
    counted.last = counted_again


def keeps_a_tensor_and_computes_with_it(batch: Any) -> None:
    numbers["calls"] += trained(batch).detach()


def counts_into_a_tensor(batch: Any) -> None:
    numbers["calls"] += 1
    opt.zero_grad()
    (loss_of(batch) / numbers["calls"]).backward()
    opt.step()


def decides_by_a_flag(batch: Any) -> None:
    opt.zero_grad()
    (loss_of(batch) * (2 if counted.is_first else 1)).backward()
    opt.step()
    counted.is_first = False


def decides_by_a_loss(batch: Any) -> None:
    if trained(batch).item() < numbers["calls"]:
        numbers["calls"] = 1


def writes_by_percent(batch: Any) -> Any:
    return "%.3f" % trained(batch).item()  # noqa: UP031  # as people write it


def pads_a_text(batch: Any) -> Any:
    return f"{trained(batch).item():.1f}".rjust(12)


def writes_a_text_and_drops_it(batch: Any) -> Any:
    text = f"{trained(batch).item():.1f}"
    return text == "0.0"


def sets_a_rate_from_the_loss(batch: Any) -> None:
    opt.zero_grad()
    loss = loss_of(batch)
    loss.backward()
    opt.param_groups[0]["lr"] = loss.item()
    opt.step()


def prints_a_list(batch: Any) -> None:
    print([trained(batch)])


def adds_to_a_set(batch: Any) -> None:
    trained(batch)
    seen.add(1)


def goes_through_a_group(batch: Any) -> None:
    trained(batch)
    for _ in opt.param_groups[0].values():
        pass


REFUSED: dict[Callable[..., Any], str] = {
    returns_a_time: r"the loop body returns .* as '1', and .* at its next call",
    returns_an_object: r"the loop body returns Counted, expected tensors, numbers and constants",
    reads_lr: r"reads param_groups\[…\]\['lr'\].*leave it to opt.step\(\)",
    other_entries: r"uses opt\.state_dict.*a loop body calls opt\.step\(\), opt\.zero_grad\(\)",
    last_lr: r"computes with get_last_lr\(\); it is alive in the compiled step",
    rate_before_its_scheduler: r"calls scheduler\.step\(\) behind a read of a rate.*read the rate last",
    decides_by_a_rate: r"reads param_groups\[…\]\['lr'\]; it is alive in the compiled step",
    scheduler_first: r"opt\.step\(\) behind the step of its scheduler.*step the scheduler last",
    closure_without_backward: r"calls no loss\.backward\(\), so it trains nothing",
    never_zeroed: r"adds to the gradient of '(weight|bias)' that an earlier call has left.*zero_grad\(\) before backward",
    no_backward: r"calls no loss\.backward\(\), so it trains nothing",
    no_step: r"steps no optimizer and writes to no parameter, so it trains nothing",
    by_hand: r"writes to '(weight|bias)' itself, and steps no optimizer though it reaches one \(SGD\); keep the optimizer out",
    step_without_gradients: r"calls opt\.step\(\) .*where no parameter has a gradient",
    no_scalar: r"backward\(\) needs a 0-d loss",
    no_parameter: r"the loss depends on no parameter",
    gradient_of_another: r"is not used in what is differentiated; .*allow_unused=True",
    same_parameters_twice: r"trains '(weight|bias)' by 2 optimizers",
    own_that_is_not_stepped: r"reaches the optimizer Own, which no rule describes, and does not step it; keep it out",
    made_in_the_body: r"steps an optimizer, SGD, that its closure, its globals and its object do not lead to",
    left_frozen: r"leaves requires_grad of a parameter other than it found it, and its next call would be another step",
    writes_before_backward: r"computes a loss with 'weight', writes to that, and calls backward\(\) then",
    writes_to_a_result: r"changes a detached tensor in place",
    ties_by_data: r"sets \.data.*to memory that another tensor has.*clone\(\)",
    data_of_another_shape: r"sets \.data.*float32\[1, 3\], where there was float32\[2, 3\]",
    data_that_changes_later: r"shares its memory with another by \.data = …, and one of them has changed",
    reads_its_log: r"changes history, which would happen once",
    keeps_an_object: r"keeps Counted, expected tensors, numbers and constants",
    keeps_a_tensor_and_computes_with_it: r"puts something into numbers\['calls'\], and its next call computes with that",
    counts_into_a_tensor: r"changes numbers\['calls'\], from 0, at a call, and computes with it.*count in a tensor",
    decides_by_a_flag: r"changes counted\.is_first, from True, at a call, and computes with it",
    decides_by_a_loss: r"needs the value of a tensor at once; return it, and decide by it outside.*\(`if trained",
    writes_by_percent: r"writes a number that it has read from a tensor by %.*an f-string may have it",
    pads_a_text: r"the loop body returns ' +' as '.*', and ' +' at its next call",
    writes_a_text_and_drops_it: r"compares a text with a number in it that it has read; return the text",
    sets_a_rate_from_the_loss: r"sets param_groups\[…\]\['lr'\] to a value of the step before opt\.step\(\)",
    prints_a_list: r"prints a tensor .*return it",
    adds_to_a_set: r"changes seen, which would happen once",
    goes_through_a_group: r"goes through param_groups",
}


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body.__name__)
def test_it_is_refused_with_its_line(body: Callable[..., Any]) -> None:
    tensors = [*model.parameters(), *other.parameters()]
    drivers = [opt, second, own, again, scheduler]
    before = copy.deepcopy(([t.detach() for t in tensors], [d.state_dict() for d in drivers]))
    kinds = [type(driver) for driver in drivers]
    example = {"x": torch.randn(4, 3), "t": torch.randn(4, 2)}
    with pytest.raises(TraceError, match=REFUSED[body]) as error:
        compile_step(body, example=example, device="cpu")
    found = re.search(r"test_loop_body_refused\.py:(\d+)", str(error.value))
    assert found is not None
    assert int(found[1]) in {line for code in (body, *CALLED) for _, _, line in code.__code__.co_lines()}
    assert [type(driver) for driver in drivers] == kinds
    after = [t.detach() for t in tensors], [d.state_dict() for d in drivers]
    for one, other_one in zip(before[0], after[0], strict=True):
        assert torch.equal(one, other_one)
    assert str(before[1]) == str(after[1])
    assert all(t.requires_grad and t.grad is None for t in tensors)
    assert (history, numbers, counted.calls, seen) == ([], {"calls": 0}, 0, set())


CALLED = (loss_of, trained)
"""Functions that bodies call: a line of theirs is as good."""


def test_a_body_is_a_function_that_reaches_a_model_and_trains_it() -> None:
    example = {"x": torch.randn(4, 3)}
    with pytest.raises(TraceError, match="a loop body is a function of a batch, got Linear"):
        compile_step(nn.Linear(2, 2), example=example)
    with pytest.raises(TraceError, match=r"calls no loss\.backward\(\), so it trains nothing"):
        compile_step(lambda batch: model(batch["x"]), example=example)
    with pytest.raises(TraceError, match="reaches no model with parameters"):
        compile_step(lambda batch: batch["x"].sum(), example=example)


def test_a_gradient_that_is_there_already_is_refused() -> None:
    net = nn.Linear(3, 2)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)

    def body(batch: Any) -> None:
        net(batch["x"]).mean().backward()
        sgd.step()
        sgd.zero_grad()

    net(torch.ones(1, 3)).sum().backward()
    with pytest.raises(
        TraceError, match="has a gradient already, which the first call of the loop body would add to"
    ):
        compile_step(body, example={"x": torch.ones(4, 3)}, device="cpu")
    sgd.zero_grad()
    compile_step(body, example={"x": torch.ones(4, 3)}, device="cpu")

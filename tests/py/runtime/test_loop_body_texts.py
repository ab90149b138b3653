"""Texts with numbers in a loop body: what is shown, returned and kept is Python's; a text that decides is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir import TraceError, compile_step

NAMES = {"0.5": "half"}


class Log:
    """Keeps the last text."""

    def __init__(self) -> None:
        self.last, self.count = "", 0

    def changed(self, text: str) -> None:
        if text != self.last:
            self.count += 1
        self.last = text

    def told(self, text: str) -> None:
        if text != self.last:
            print(text)

    def shown(self, text: str) -> None:
        print("before", self.last, "now", text)
        self.last = text


def short(loss: torch.Tensor) -> str:
    return f"{loss.item():.1f}"


def compares(loss: torch.Tensor, log: Log) -> Any:
    text = f"loss {loss.item():.1f}"
    return text == "loss 0.5", text


def orders_what_str_makes(loss: torch.Tensor, log: Log) -> Any:
    text = str(round(loss.item(), 1))
    return "low" if text < "1.0" else "high", text


def looks_into(loss: torch.Tensor, log: Log) -> Any:
    text = f"{loss.item():.1f}"
    return text.startswith("0"), text


def is_in(loss: torch.Tensor, log: Log) -> Any:
    text = "{:.1f}".format(loss.item())  # noqa: UP032
    return text in ("0.5", "0.6"), text


def looks_up(loss: torch.Tensor, log: Log) -> Any:
    text = f"{loss.item():.1f}"
    return NAMES.get(text, "other"), text


def compares_what_is_made_of_it(loss: torch.Tensor, log: Log) -> Any:
    text = f"{loss.item():.1f}"
    longer = "v" + text
    return [name for name in ("v0.5", "v0.6") if name == longer], text


def matches(loss: torch.Tensor, log: Log) -> Any:
    text = f"{loss.item():.1f}"
    match text:
        case "0.5":
            return "half", text
        case _:
            return "other", text


def compares_what_a_function_returns(loss: torch.Tensor, log: Log) -> Any:
    text = short(loss)
    return text != "0.5", text


def counts_in_a_method(loss: torch.Tensor, log: Log) -> Any:
    log.changed(f"loss {loss.item():.1f}")


def prints_in_a_method(loss: torch.Tensor, log: Log) -> Any:
    log.told(f"loss {loss.item():.1f}")


def compares_in_one_line(loss: torch.Tensor, log: Log) -> Any:
    number, text = 1, f"{loss.item():.1f}"; return number, text == "0.5"  # fmt: skip  # noqa: E702


def compares_an_attribute(loss: torch.Tensor, log: Log) -> Any:
    text = log.last = f"{loss.item():.1f}"
    return log.last == "0.5", text


REFUSED = (
    compares,
    compares_in_one_line,
    compares_an_attribute,
    orders_what_str_makes,
    looks_into,
    is_in,
    looks_up,
    compares_what_is_made_of_it,
    matches,
    compares_what_a_function_returns,
    counts_in_a_method,
    prints_in_a_method,
)


def tells(loss: torch.Tensor, log: Log) -> Any:
    if log.count == 0:
        print(f"loss {loss.item():.1f}")
    print("-----")
    logging.getLogger(__name__).warning("after %s", "it")
    log.shown(short(loss))
    told = {"loss": f"{loss.item():.2f}"}
    return told, short(loss) if told else ""


def trained(
    write: Callable[[torch.Tensor, Log], Any],
) -> tuple[Callable[[dict[str, torch.Tensor]], Any], Log]:
    """A body that trains a model and then writes about its loss."""
    torch.manual_seed(0)
    model, log = nn.Linear(4, 1), Log()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(batch: dict[str, torch.Tensor]) -> Any:
        opt.zero_grad()
        loss = (model(batch["x"]) ** 2).mean()
        loss.backward()
        opt.step()
        return write(loss, log)

    return body, log


@pytest.mark.parametrize("write", REFUSED, ids=lambda write: write.__name__)
def test_a_text_that_decides_is_refused(write: Callable[[torch.Tensor, Log], Any]) -> None:
    body, _ = trained(write)
    with pytest.raises(TraceError, match="compares a text with a number in it"):
        compile_step(body, example={"x": torch.ones(8, 4)}, device="cpu")


def test_what_is_told_is_as_in_python(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    batch = {"x": torch.linspace(-2, 2, 32).reshape(8, 4)}
    told: list[Any] = []
    for compiled in (False, True):
        body, log = trained(tells)
        call = compile_step(body, example=batch, device="cpu") if compiled else body
        returned = [call(batch) for _ in range(5)]
        told.append(
            (
                returned,
                capsys.readouterr().out,
                log.last,
                [record.message for record in caplog.records if record.name == __name__],
            )
        )
        caplog.clear()
    assert told[0] == told[1]
    assert len(told[0][3]) == 5
    assert len({text for _, text in told[0][0]}) > 1  # or a constant would do

"""Progress of a training loop: what is shown where, that it stays out of the way, and that its line is closed."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from models import mlp, regression, to_device
from torch.utils.data import DataLoader, IterableDataset

from aicf_mlir import AicfError, BindError, StateError, compile_train_step, progress, train_step
from aicf_mlir.loop import displays
from aicf_mlir.loop import progress as module
from aicf_mlir.loop.readings import Readings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What a terminal shows: of each line, what was written last."""
        return [line.rpartition("\r")[2].rstrip() for line in self.getvalue().split("\n")]


def use(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have progress write there; pytest sets sys.stderr anew when a test begins."""
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=stream))


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Where stderr goes, no terminal."""
    use(made := io.StringIO(), monkeypatch)
    return made


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Where stderr goes, looked at after every step, without tqdm."""
    use(made := Terminal(), monkeypatch)
    monkeypatch.setattr(displays, "REFRESH", 0.0)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setenv("COLUMNS", "100")
    return made


def made(device: str = "cpu") -> tuple[Any, dict[str, torch.Tensor]]:
    model = mlp(8, 17, 8).to(device)
    batch = to_device(regression(5), device)
    return compile_train_step(
        model, torch.optim.Adam(model.parameters()), example=batch, device=device
    ), batch


def test_a_file_gets_nothing_unless_it_is_asked_for(file: io.StringIO) -> None:
    assert list(progress(range(100))) == list(range(100))
    assert file.getvalue() == ""
    assert list(progress(range(100), show=True)) == list(range(100))
    assert file.getvalue() != ""


def test_lines_in_a_file_have_the_loss_of_their_step(device: str, file: io.StringIO) -> None:
    step, batch = made(device)
    losses = [step.train_step(each) for each in progress([batch] * 24, step, name="train", show=True)]
    lines = file.getvalue().splitlines()
    assert len(lines) == displays.LINES
    for number, line in zip(range(3, 25, 3), lines, strict=True):
        loss = f"{losses[number - 1].item():.4g}"
        end = r"\d+\.\d steps/s  \d+:\d\d to go"
        assert re.fullmatch(rf"train  step +{number}/24  loss {re.escape(loss)}  {end}", line), line


def test_one_line_of_a_terminal(terminal: Terminal) -> None:
    step, batch = made()
    loss = torch.tensor(0.0)
    for each in progress([batch] * 24, step):
        loss = step.train_step(each)
    assert terminal.getvalue().count("\r") == 25
    line, after = terminal.lines
    assert re.fullmatch(rf"step 24/24  loss {loss.item():.4g}  \d+\.\d steps/s  0:00 to go", line)
    assert after == ""


def test_a_bar_of_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    use(terminal := Terminal(), monkeypatch)
    step, batch = made()
    loss = torch.tensor(0.0)
    for each in progress([batch] * 24, step, name="train"):
        loss = step.train_step(each)
    line, after = terminal.lines
    assert re.match(r"train: 100%\|.*\| 24/24 \[.*step/s, loss ", line), line
    assert f"loss {loss.item():.4g}]" in line
    assert after == ""


def test_show_false_shows_nothing(terminal: Terminal) -> None:
    assert sum(1 for _ in progress(range(10), show=False)) == 10
    assert terminal.getvalue() == ""


def test_other_numbers_beside_the_loss(terminal: Terminal) -> None:
    step, batch = made()
    bar = progress([batch] * 3, step)
    for number, each in enumerate(bar):
        step.train_step(each)
        bar.set_postfix(
            lr=0.25, epoch=2, phase="warm-up", norm=torch.tensor([float(number)], requires_grad=True)
        )
    assert re.match(r"step 3/3  loss [\d.]+  lr 0.25  epoch 2  phase warm-up  norm 2  ", terminal.lines[0])


def test_a_loss_of_another_step(device: str, terminal: Terminal) -> None:
    bar = progress(range(3))
    for number in bar:
        bar.set_postfix(loss=torch.tensor(number + 0.5, device=device))
    assert "  loss 2.5  " in terminal.lines[0]


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.arange(6.0)


@pytest.mark.parametrize(
    ("batches", "total", "shown"),
    [
        ([1, 2, 3], None, "step 3/3"),
        ((number for number in range(3)), None, "step 3"),
        ((number for number in range(3)), 5, "step 3/5"),
        ([1, 2, 3], 2, "step 3/2"),
        ([], None, "step 0/0"),
        ([], 4, "step 0/4"),
        (DataLoader([torch.ones(2)] * 6, batch_size=2), None, "step 3/3"),
        (DataLoader(Stream(), batch_size=2), None, "step 3"),
    ],
)
def test_how_long_a_loop_is(batches: Any, total: int | None, shown: str, terminal: Terminal) -> None:
    for _ in progress(batches, total=total):
        pass
    assert re.match(rf"{shown}(  |$)", terminal.lines[0]), terminal.lines
    assert ("to go" in terminal.lines[0]) == (shown in ("step 3/3", "step 3/5"))


def test_a_stream_in_a_file(file: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "LINE_SECONDS", 0.02)
    for _ in progress(iter(range(10)), show=True):
        time.sleep(0.011)
    numbers = [int(line.split()[1]) for line in file.getvalue().splitlines()]
    assert numbers[-1] == 10
    assert 2 <= len(numbers) <= 6
    assert numbers == sorted(set(numbers))


def test_a_loop_that_ends_early_closes_its_line(terminal: Terminal) -> None:
    bar = progress(range(10))
    for number in bar:
        if number == 4:
            break
    assert terminal.getvalue().endswith("\n")
    assert terminal.lines[0].startswith("step  4/10")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_closes_the_line_before_it_is_told(error: type[BaseException], terminal: Terminal) -> None:
    def training(where: str) -> None:
        def batches() -> Iterator[int]:
            for number in range(10):
                if where == "loader" and number == 4:
                    raise error("the loader")
                yield number

        bar = progress(batches(), total=10)
        for number in bar:
            if where == "body" and number == 4:
                raise error("the body")

    for where in ("loader", "body"):
        try:
            training(where)
        except error as caught:
            assert str(caught) == f"the {where}"
            assert terminal.getvalue().endswith("\n")
            assert terminal.lines[-2].startswith("step  4/10")


def test_a_bar_of_tqdm_is_closed_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    use(terminal := Terminal(), monkeypatch)
    bar = progress(range(10))
    with pytest.raises(ValueError, match=r"the body"):
        for number in bar:
            if number == 4:
                raise ValueError("the body")
    assert terminal.getvalue().endswith("\n")
    assert " 4/10 " in terminal.lines[0]


def test_each_epoch_begins_anew(terminal: Terminal) -> None:
    bar = progress([1, 2])
    for _ in range(3):
        for _ in bar:
            pass
    assert [line.split("  ")[0] for line in terminal.lines] == ["step 2/2"] * 3 + [""]


class Read:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.times = 0

    def __str__(self) -> str:
        self.times += 1
        return "x"


def test_numbers_are_read_seldom_and_steps_cost_little(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(displays, "REFRESH", 0.25)
    bar, value, steps = progress(range(100_000)), Read(), 100_000
    started = time.perf_counter()
    for _ in bar:
        bar.set_postfix(value=value)
    seconds = time.perf_counter() - started
    assert 1 <= value.times <= seconds / 0.25 + 2
    assert seconds / steps < 50e-6, "some microseconds a step, on a machine that others use"


def test_a_narrow_terminal_is_not_wrapped(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    for _ in progress(range(3), name="a name that takes more than a line"):
        pass
    assert len(terminal.lines[0]) == 29


def test_a_terminal_that_has_gone_does_not_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError

    for stream in (Gone(), closed := Terminal(), None):
        closed.close()
        use(stream, monkeypatch)
        monkeypatch.setitem(sys.modules, "tqdm", None)
        monkeypatch.setattr(displays, "REFRESH", 0.0)
        assert list(progress(range(10))) == list(range(10))


def test_a_step_that_has_no_loss_now(terminal: Terminal) -> None:
    step, batch = made()
    for _ in progress(range(2), step):
        pass
    step.train_step(batch)
    with step._session:  # as another thread inside of a step has it
        inside = threading.Thread(target=lambda: list(progress(range(2), step)))
        inside.start()
        inside.join()
    step.close()
    for _ in progress(range(2), step):
        pass
    assert [line.split("  ")[0] for line in terminal.lines] == ["step 2/2"] * 3 + [""]
    assert "loss" not in terminal.getvalue()


def test_training_is_that_without_it(terminal: Terminal) -> None:
    (step, batch), (other, _) = made(), made()
    ours = [step.train_step(each) for each in progress([batch] * 5, step)]
    assert torch.equal(torch.stack(ours), torch.stack([other.train_step(batch) for _ in range(5)]))


def test_the_loss_of_a_step(device: str) -> None:
    step, batch = made(device)
    with pytest.raises(StateError, match=r"step: no step has run yet, so the loss has no value"):
        _ = step.loss
    first = step.train_step(batch)
    kept = step.loss
    step.capture(batch)
    last = step.replay(3)
    assert torch.equal(kept, first)
    assert torch.equal(step.loss, last)
    assert not torch.equal(first, last)


def test_a_decorated_loop_body_shows_its_loss_from_the_first_call_on(terminal: Terminal) -> None:
    model, batch = mlp(8, 17, 8), regression(5)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    @train_step
    def body(batch: Any) -> torch.Tensor:
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["t"])
        loss.backward()
        opt.step()
        return loss

    with pytest.raises(StateError, match="the loop body has not been called yet"):
        _ = body.loss
    losses = [body(each).item() for each in progress([batch] * 3, body)]
    assert f"loss {losses[-1]:.4g}" in terminal.lines[0]
    assert body.loss.item() == losses[-1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: progress(5), r"progress needs batches to go through, got int"),
        (
            lambda: progress([], object()),
            r"takes the loss from a compiled step or loop body, got object; pass model\.compiled_step, .*set_postfix\(loss=…\)",
        ),
        (lambda: progress([], total=-1), r"a whole number of steps as total, got -1"),
        (lambda: progress([], total=2.5), r"a whole number of steps as total, got 2.5"),
        (lambda: progress([], total=True), r"a whole number of steps as total, got True"),
        (
            lambda: progress([]).set_postfix(norms=torch.ones(2, 3)),
            r"progress shows numbers: 'norms' is a tensor of shape \[2, 3\]; reduce it to one element",
        ),
    ],
)
def test_refuses_what_it_cannot_show(call: Any, message: str) -> None:
    with pytest.raises(BindError, match=message) as caught:
        call()
    assert isinstance(caught.value, AicfError)


@pytest.mark.gpu
def test_numbers_of_a_gpu_are_not_waited_for() -> None:
    value = torch.full((), 1.5, device="cuda")
    Readings({"loss": value + 1}).text()  # loads the kernel and takes pinned memory, which waits
    torch.cuda._sleep(2_000_000_000)  # pyright: ignore[reportPrivateUsage]
    readings = Readings({"loss": value + 1, "lr": 0.1})
    assert not readings.are_known
    assert readings.text() == "loss 2.5  lr 0.1"
    assert readings.are_known

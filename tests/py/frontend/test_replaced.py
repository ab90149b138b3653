"""Functions that a trace replaces are others in the thread that traces, as long as it does, and nowhere else."""

from __future__ import annotations

import builtins
import logging
import math
import pickle
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir import compile_step
from aicf_mlir.frontend.loop_body.numbers import Book, NumberReads
from aicf_mlir.frontend.loop_body.shown import replaced
from aicf_mlir.frontend.reads import Replaced
from aicf_mlir.frontend.selections import counted

FUNCTIONS = {"print": lambda: builtins.print, "len": lambda: builtins.len, "sqrt": lambda: math.sqrt}


def body() -> tuple[Any, tuple[torch.Tensor, torch.Tensor]]:
    model = nn.Linear(3, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    total = {"sum": 0.0}

    def step(x: torch.Tensor, t: torch.Tensor) -> float:
        loss = (model(x) - t).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total["sum"] += math.fsum([loss.item(), 1.0])
        print("loss", max([loss.item(), 0.0]), math.sqrt(loss.item()))
        return total["sum"]

    return step, (torch.randn(4, 3), torch.randn(4, 1))


def test_who_keeps_one_has_the_original_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Any] = []
    with replaced(Book(), calls), counted():
        kept = [get() for get in FUNCTIONS.values()]
        sent = pickle.dumps(kept)
        elsewhere = Thread(target=kept[0], args=("elsewhere",))
        elsewhere.start()
        elsewhere.join()
    assert capsys.readouterr().out == "elsewhere\n"
    assert not calls
    kept[0]("again")
    assert capsys.readouterr().out == "again\n"
    assert kept[1]([1, 2]) == 2
    assert kept[2](4.0) == 2.0
    for each, again, get in zip(kept, pickle.loads(sent), FUNCTIONS.values(), strict=True):
        assert type(each) is Replaced  # else nothing is shown here
        assert again is get()
        assert each.__name__ == get().__name__


def test_another_thread_prints_and_logs_while_one_traces(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(3, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    caplog.set_level(logging.INFO, "beside")

    def elsewhere() -> None:
        print("from beside", len([1, 2, 3]))
        logging.getLogger("beside").info("told %d", 7)

    def step(x: torch.Tensor, t: torch.Tensor) -> float:
        loss = (model(x) - t).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    ran = []

    compiled: list[Any] = []
    tracing = Thread(
        target=lambda: compiled.append(
            compile_step(step, example=[(torch.randn(4, 3), torch.randn(4, 1))], device="cpu")
        )
    )
    tracing.start()
    while tracing.is_alive():
        elsewhere()
        ran.append(1)
        tracing.join(0.02)
    assert compiled
    assert capsys.readouterr().out == "from beside 3\n" * len(ran)
    assert [each.getMessage() for each in caplog.records if each.name == "beside"] == ["told 7"] * len(ran)


def test_functions_of_one_list_follow_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    step, batch = body()
    compiled = compile_step(step, example=[batch], device="cpu")
    torch.manual_seed(0)
    same, _ = body()
    for _ in range(3):
        assert compiled(batch) == pytest.approx(same(*batch), rel=1e-5)
    lines = capsys.readouterr().out.splitlines()
    ours, theirs = lines[0::2], lines[1::2]
    for one, other in zip(ours, theirs, strict=True):
        assert [float(n) for n in one.split()[1:]] == pytest.approx(
            [float(n) for n in other.split()[1:]], rel=1e-5
        )


TWO = torch.tensor([[1.0], [2.0]])


def test_reads_of_numbers_are_nested() -> None:
    with NumberReads() as outer:
        with NumberReads() as inner:
            assert TWO.tolist() == [[1.0], [2.0]]
        assert TWO.tolist() == [[1.0], [2.0]]
    assert [each.item() for each in inner.tensors] == [1.0, 2.0]
    assert [each.item() for each in outer.tensors] == [1.0, 2.0, 1.0, 2.0]
    assert "tolist" not in vars(torch.Tensor)


def test_reads_of_numbers_are_those_of_a_thread() -> None:
    """Two read, and the one that began first ends first."""
    turn, found = Barrier(3, timeout=20), dict[str, Any]()

    def first() -> None:
        with NumberReads() as reads:
            turn.wait()
            turn.wait()
            TWO.tolist()
        found["first"] = len(reads.tensors)
        turn.wait()

    def second() -> None:
        turn.wait()
        with NumberReads() as reads:
            turn.wait()
            turn.wait()
            TWO.tolist()
            found["second"] = len(reads.tensors)

    threads = [Thread(target=each) for each in (first, second)]
    for thread in threads:
        thread.start()
    turn.wait()
    turn.wait()
    assert TWO.tolist() == [[1.0], [2.0]]
    turn.wait()
    for thread in threads:
        thread.join()
    assert found == {"first": 2, "second": 2}
    assert "tolist" not in vars(torch.Tensor)


def test_a_function_of_the_users_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(tensor: torch.Tensor) -> str:
        return "own"

    monkeypatch.setattr(torch.Tensor, "tolist", own, raising=False)
    with NumberReads():
        assert TWO.tolist() == "own"
    assert TWO.tolist() == "own"

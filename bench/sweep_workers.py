"""Tasks side by side in several processes, until a deadline: what was found by then is kept, and what was not is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any

GRACE = 5.0
"""Seconds after the deadline in which a case that has begun may come to its end."""

Work = Callable[[Any], Iterator[Any]]
"""Of a task: first the title of each case, before it begins, then its result, in turns."""


@dataclass
class Outcome:
    found: list[Any] = field(default_factory=list[Any])
    unfinished: list[str] = field(default_factory=list[str])
    """Cases that had begun, and how they ended."""
    untouched: list[Any] = field(default_factory=list[Any])
    """Tasks of which no case began."""


def side_by_side(
    begin: Callable[..., Work], arguments: Sequence[Any], tasks: Iterable[Any], workers: int, end: float
) -> Outcome:
    """What `begin(place, *arguments)`, called once in each of so many processes, finds of the tasks until the time `end`.

    A process that dies loses the case it is at, and the tasks after it go to the others. One that hangs is ended.
    """
    context, outcome, tasks = get_context("spawn"), Outcome(), list(tasks)
    waiting, begun = context.Value("i", 0), set[int]()
    processes, at = dict[Any, Any](), dict[Any, str]()
    for place in range(workers):
        received, sent = context.Pipe(duplex=False)
        process = context.Process(
            target=serve, args=(place, begin, arguments, tasks, waiting, sent), daemon=True
        )
        process.start()
        sent.close()
        processes[received] = process
    open_ones = set(processes)
    while open_ones and (left := end + GRACE - time.time()) > 0:
        pipe: Any
        for pipe in wait(list(open_ones), left):
            try:
                kind, value = pipe.recv()
            except EOFError:
                open_ones.remove(pipe)
                processes[pipe].join()
                if code := processes[pipe].exitcode:
                    outcome.unfinished.append(f"{at.pop(pipe, 'a process')}: exit code {code}")
                continue
            if kind == "task":
                begun.add(value)
            elif kind == "case":
                at[pipe] = value
            else:
                del at[pipe]
                outcome.found.append(value)
    outcome.unfinished += [f"{title}: not done in time" for title in at.values()]
    outcome.untouched = [task for number, task in enumerate(tasks) if number not in begun]
    for process in processes.values():
        process.kill()
    for process in processes.values():  # each takes a while to leave a GPU
        process.join()
    return outcome


def serve(
    place: int,
    begin: Callable[..., Work],
    arguments: Sequence[Any],
    tasks: Sequence[Any],
    waiting: Any,
    sent: Any,
) -> None:
    """In each process: the next task of all, one after the other."""
    work = begin(place, *arguments)
    while True:
        with waiting.get_lock():
            number, waiting.value = waiting.value, waiting.value + 1
        if number >= len(tasks):
            return
        for turn, value in enumerate(work(tasks[number])):
            if turn == 0:
                sent.send(("task", number))
            sent.send(("found" if turn % 2 else "case", value))

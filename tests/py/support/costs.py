"""What a usual run leaves out: of each test function, cases and draws beyond a budget of CPU seconds; and long functions.

`costs.tsv` has a row for each function that costs more: its name, the CPU seconds of one case, with those of child
processes, and the name of the cheapest one where there is time for one case only, whose seconds these are then. `pytest -n 0
--measure-costs` runs a campaign, adds the rows of the functions that it has run, and drops those of functions that are
cheap now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from math import inf
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import NamedTuple, Protocol, TypeVar

import pytest

TABLE = Path(__file__).parents[1] / "costs.tsv"
CASES = 0.3
"""CPU seconds for the cases of one function in a usual run; one case runs if it is not `LONG`."""
LONG = 1.0
"""CPU seconds of a case that runs in a campaign only, unless its function is the cheapest of a file or is marked `usual`."""
DRAWS = 1.0
"""CPU seconds for what a function draws, or takes from a list, by the fixture `some`."""

Item = TypeVar("Item")


class Some(Protocol):
    """The fixture `some`: the items of a sequence for which the test has time, from the first to the last."""

    def __call__(self, items: Sequence[Item], /) -> list[Item]: ...


class Cost(NamedTuple):
    """CPU seconds of one case with all of its draws; of the cheapest case where that one is named."""

    seconds: float
    cheapest: str = ""


def read(table: Path = TABLE) -> dict[str, Cost]:
    """The rows of the table by the names of functions, as in `frontend/test_x.py::test_y`."""
    rows = (line.split("\t") for line in table.read_text().splitlines())
    return {name: Cost(float(seconds), *cheapest) for name, seconds, *cheapest in rows}


def function_of(item: pytest.Item) -> str:
    """The name of a case's function in the table."""
    return item.nodeid.partition("[")[0].removeprefix("tests/py/")


def spread(items: Sequence[Item], wanted: int) -> list[Item]:
    """`wanted` of the items, or all, from the first one to the last."""
    wanted = min(max(wanted, 1), len(items))
    return [items[round(i * (len(items) - 1) / max(wanted - 1, 1))] for i in range(wanted)]


def beyond_budget(items: Iterable[pytest.Item], costs: dict[str, Cost]) -> Iterator[pytest.Item]:
    """The cases that a usual run leaves out, those for a GPU counted by themselves; what is skipped costs nothing."""
    groups: dict[tuple[str, bool], list[pytest.Item]] = defaultdict(list)
    least: dict[tuple[str, bool], float] = {}
    for item in items:
        if item.get_closest_marker("campaign"):
            yield item
        elif not item.get_closest_marker("skip"):
            function, on_gpu = function_of(item), bool(item.get_closest_marker("gpu"))
            groups[function, on_gpu].append(item)
            file = function.partition("::")[0], on_gpu
            least[file] = min(least.get(file, inf), costs[function].seconds if function in costs else 0.0)
    for (function, on_gpu), own in groups.items():
        if cost := costs.get(function):
            longest = max(LONG, least[function.partition("::")[0], on_gpu])
            if cost.seconds > longest and not own[0].get_closest_marker("usual"):
                yield from own
                continue
            cheapest = [item for item in own if item.nodeid.endswith(f"[{cost.cheapest}]")]
            kept = cheapest[:1] or spread(own, int(CASES / cost.seconds))
            yield from (item for item in own if item not in kept)


def some(items: Sequence[Item], cost: Cost | None) -> list[Item]:
    """The items for which a usual run has time in a test of this cost."""
    return spread(items, int(len(items) * DRAWS / cost.seconds)) if cost else [*items]


class Measuring:
    """A plug-in that writes the table after a run in one process."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._drawn: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = cpu_seconds()
        result = yield
        if not item.get_closest_marker("skip"):
            case = item.nodeid.partition("[")[2].removesuffix("]")
            self._found[function_of(item)].append((cpu_seconds() - before, case))
            if "some" in getattr(item, "fixturenames", ()):
                self._drawn.add(function_of(item))
        return result

    def pytest_sessionfinish(self) -> None:
        costs = read()
        for function, cases in self._found.items():
            seconds = sum(s for s, _ in cases) / len(cases)
            costs.pop(function, None)
            if (len(cases) > 1 and seconds * len(cases) > CASES) or (len(cases) == 1 and seconds > DRAWS):
                costs[function] = Cost(*min(cases)) if seconds > CASES / 2 else Cost(seconds)
        rows = (
            f"{name}\t{seconds:.2g}\t{cheapest}".rstrip()
            for name, (seconds, cheapest) in sorted(costs.items())
        )
        TABLE.write_text("".join(f"{row}\n" for row in rows))


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(used.ru_utime + used.ru_stime for used in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))

"""Which cases a usual run has of a test that costs more than its budget, and which a campaign has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import conftest
import costs
import pytest
from costs import CASES, DRAWS, LONG, Cost

MANY = "file.py::test_many"
COSTS = {
    MANY: Cost(CASES / 3),
    "file.py::test_few": Cost(CASES / 3),
    "file.py::test_dear": Cost(LONG, "2-cpu"),
    "file.py::test_long": Cost(LONG * 2),
    "file.py::test_main_path": Cost(LONG * 3),
    "ranks.py::test_longer": Cost(LONG * 3),
    "ranks.py::test_long": Cost(LONG * 2, "1"),
}


class Case:
    """A collected case with its marks."""

    def __init__(self, name: str, *marks: str):
        self.nodeid = f"tests/py/{name}"
        self.marks = {mark: pytest.mark.usefixtures(mark).mark for mark in marks}

    def get_closest_marker(self, name: str) -> Any:
        return self.marks.get(name)


CASES_OF_ALL = [
    *(Case(f"{MANY}[{i}]") for i in range(10)),
    *(Case(f"file.py::test_few[{i}]") for i in range(2)),
    *(Case(f"file.py::test_free[{i}]") for i in range(10)),
    *(Case(f"file.py::test_dear[{i}-cpu]") for i in range(4)),
    *(Case(f"file.py::test_dear[{i}-cuda]", "gpu") for i in range(4)),
    *(Case(f"{MANY}[cuda-{i}]", "skip") for i in range(10)),
    Case("file.py::test_shown_elsewhere", "campaign"),
    Case("file.py::test_long"),
    Case("file.py::test_main_path", "usual"),
    Case("ranks.py::test_longer"),
    *(Case(f"ranks.py::test_long[{i}]") for i in range(2)),
]


def ran() -> list[str]:
    items: Any = CASES_OF_ALL
    left_out: Any = [*costs.beyond_budget(items, COSTS)]
    return [case.nodeid.removeprefix("tests/py/") for case in CASES_OF_ALL if case not in left_out]


def test_a_usual_run_has_some_cases_from_first_to_last() -> None:
    assert [name for name in ran() if f"{MANY}[" in name and "cuda" not in name] == [
        f"{MANY}[{i}]" for i in (0, 4, 9)
    ]
    assert len(ran()) == 3 + 2 + 10 + 2 + 10 + 2, "what is skipped costs nothing, and says why it is"


def test_of_what_is_dear_it_has_one_case_for_each_device() -> None:
    assert [name for name in ran() if "dear" in name] == [
        f"file.py::test_dear[{i}]" for i in ("2-cpu", "0-cuda")
    ]


def test_of_what_is_long_it_has_main_paths_and_one_function_of_each_file() -> None:
    assert [name for name in ran() if "long" in name or "main" in name] == [
        "file.py::test_main_path", "ranks.py::test_long[1]"
    ]  # fmt: skip


def test_of_what_is_drawn_it_has_what_there_is_time_for() -> None:
    assert costs.some(range(9), Cost(DRAWS * 3)) == [0, 4, 8]
    assert costs.some(range(9), Cost(DRAWS * 100)) == [0]
    assert costs.some(range(9), Cost(DRAWS / 2)) == costs.some(range(9), None) == [*range(9)]


@pytest.mark.parametrize(
    "options",
    [
        {"--campaign": True},
        {"counts_given": True},
        {"keyword": "many"},
        {"arguments": ("file.py::test_many",)},
        {},
    ],
)
def test_a_campaign_and_who_asks_by_name_have_all(options: dict[str, Any]) -> None:
    given = {"--campaign": False, "keyword": "", "counts_given": False} | options
    config: Any = SimpleNamespace(
        getoption=given.__getitem__, args=list(given.get("arguments", ("tests/py",)))
    )
    assert conftest.is_asked_for(config) == bool(options)


def test_every_row_is_of_a_test() -> None:
    for name, cost in costs.read().items():
        assert not cost.cheapest.startswith("/"), f"{name}: the name of a case is the same on every machine"
        path, _, function = name.partition("::")
        text = (costs.TABLE.parent / path).read_text()
        assert f"def {function.rpartition('::')[2]}(" in text, name

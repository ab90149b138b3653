"""Which cases a usual run has of a test that is marked `sample`, and which a campaign has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from conftest import beyond_samples


class Case:
    """A collected case with its marks."""

    def __init__(self, name: str, **marks: int):
        self.nodeid = name
        self.marks = {mark: pytest.mark.usefixtures(number).mark for mark, number in marks.items()}

    def get_closest_marker(self, name: str) -> Any:
        return self.marks.get(name)


CASES = [
    *(Case(f"file.py::test_many[{i}]", sample=3) for i in range(10)),
    *(Case(f"file.py::test_few[{i}]", sample=3) for i in range(2)),
    *(Case(f"file.py::test_all[{i}]") for i in range(10)),
    *(Case(f"file.py::test_many[cuda-{i}]", sample=3, skip=0) for i in range(10)),
]


def run(arguments: tuple[str, ...] = ("tests/py",), campaign: bool = False, keyword: str = "") -> list[str]:
    """The names of the cases that run."""
    options = {"--campaign": campaign, "keyword": keyword}
    config: Any = SimpleNamespace(getoption=options.__getitem__, args=list(arguments))
    items: Any = CASES
    left_out: Any = list(beyond_samples(config, items))
    return [case.nodeid for case in CASES if case not in left_out]


def test_a_usual_run_has_some_cases_from_first_to_last() -> None:
    ran = run()
    assert [name for name in ran if "test_many[" in name and "cuda" not in name] == [
        f"file.py::test_many[{i}]" for i in (0, 4, 9)
    ]
    assert len(ran) == 3 + 2 + 10 + 10, "what is skipped costs nothing, and says why it is"


@pytest.mark.parametrize(
    "options", [{"campaign": True}, {"keyword": "many"}, {"arguments": ("file.py::test_many",)}]
)
def test_a_campaign_and_who_asks_by_name_have_all(options: dict[str, Any]) -> None:
    assert len(run(**options)) == len(CASES)

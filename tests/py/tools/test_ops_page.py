"""docs/ops.md names the ops, and what is refused of them."""

from __future__ import annotations

import re

import pytest
from ops_page import PAGE, TEXT, families, forbidden, render

from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.frontend.complex_rules import RULES


def test_the_page_is_what_the_compiler_does() -> None:
    assert PAGE.read_text() == render(), "run python tests/py/tools/ops_page.py"


@pytest.mark.parametrize("page", ["ops.md", "support.md"])
def test_the_readme_links_to_it(page: str) -> None:
    readme = (PAGE.parents[1] / "README.md").read_text()
    assert f"](docs/{page})" in readme
    assert not re.search(r"\bany `?torch\.nn\.Module", readme, re.IGNORECASE)


def test_the_page_has_a_place_for_each_table() -> None:
    assert len(re.findall(r"\{\w+\}", TEXT)) == 4


def test_every_op_is_of_a_family() -> None:
    named = {name.split(".")[1] for name in (*TABLE, *map(str, RULES)) if name.startswith("aten.")}
    named |= {name.split(".")[1] for name in TABLE if name.startswith("transformers.")}
    assert set().union(*families().values()) == {name for name in named if not name.startswith("_")}


def test_reasons_are_read_from_the_source() -> None:
    reasons = forbidden()
    assert any(reason.startswith("a packed sequence") for reason in reasons)
    assert any(reason.startswith("a boolean mask as an index") for reason in reasons), (
        "a constant of a module"
    )

"""docs/ops.md says what trains, and what does not."""

from __future__ import annotations

import re

import pytest
from ops_page import PAGE, TEXT, render


@pytest.mark.filterwarnings("ignore")  # of torch, about its own layers
def test_the_page_is_what_the_compiler_does() -> None:
    assert PAGE.read_text() == render(), "run python tests/py/ops_page.py"


def test_the_readme_links_to_it() -> None:
    readme = (PAGE.parents[1] / "README.md").read_text()
    assert "](docs/ops.md)" in readme
    assert not re.search(r"\bany `?torch\.nn\.Module", readme, re.IGNORECASE)


def test_the_page_has_a_place_for_each_table() -> None:
    assert len(re.findall(r"\{\w+\}", TEXT)) == 9

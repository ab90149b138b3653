"""Writes docs/option_table.md from the table of options: `python tests/py/tools/options_page.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

from aicf_mlir.step.options.option import REQUIRED, Entry, Option
from aicf_mlir.step.options.table import OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "option_table.md"
TEXT = """\
# The table of options

Written by `python tests/py/tools/options_page.py` from the table of options (`aicf_mlir/step/options/table.py`);
`tests/py/tools/test_options.py` holds this page and the signatures to it. All options are keywords.

| option | `compile_train_step` | `compile_eval_step` | `compile_step` | type | default | read it by |
|---|---|---|---|---|---|---|
{rows}

{sections}
"""

FUNCTIONS: Mapping[Entry, str] = {
    "train": "compile_train_step",
    "eval": "compile_eval_step",
    "loop": "compile_step",
}


def cell(text: str) -> str:
    """Code in a cell of a table."""
    return "`" + text.replace("|", "\\|") + "`"


def row(option: Option) -> str:
    """The row of one option; type and default are those of the first function that takes it."""
    taken = ["✓" if entry in option.taken_by else "" for entry in FUNCTIONS]
    default = "required" if option.default is REQUIRED else cell(repr(option.default))
    apart = [
        f"{cell(repr(value))} in {cell(FUNCTIONS[entry])}"
        for entry, (_, value) in option.apart.items()
        if value is not REQUIRED
    ]
    apart += [
        f"required by {cell(FUNCTIONS[entry])}"
        for entry, (_, value) in option.apart.items()
        if value is REQUIRED
    ]
    reports = ", ".join(cell(f"step.{name}") for name in option.reports)
    cells = [
        f"[`{option.keyword}`](#{option.keyword.lower()})",
        *taken,
        cell(option.type),
        ", ".join([default, *apart]),
        reports,
    ]
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The whole text."""
    sections = [
        f"## {option.keyword}\n\n{fill(option.text, 120, break_on_hyphens=False)}" for option in OPTIONS
    ]
    return TEXT.format(rows="\n".join(map(row, OPTIONS)), sections="\n\n".join(sections))


if __name__ == "__main__":
    PAGE.write_text(page())

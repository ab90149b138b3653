"""The documents are plain English: short sentences and paragraphs, headings, the words of the field; and they are complete."""

from __future__ import annotations

import inspect
import re

import prose
import pytest
from prose import PAGES, ROOT

import aicf_mlir
from aicf_mlir.machine import environment
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.step.eval_step import CompiledEvalStep
from aicf_mlir.step.loop_step import CompiledLoopStep

MOST_WORDS_IN_A_SENTENCE = 35
MOST_WORDS_IN_A_PARAGRAPH = 120
MOST_WORDS_IN_A_SECTION = 400
MOST_LINES_OF_THE_README = 150

INSTEAD = {
    r"(?:whatever|whoever)": "name it",
    r"anyhow": "leave it out",
    r"anew": "again",
    r"beside": "next to, with, compared with",
    r"behind": "after",
    r"(?:is|are) told": "is reported",
    r"(?:is|are) asked (?:of|for)": "is requested, is read",
    r"(?:lie|lies|lying) (?:in|at|on|outside|where)": "is in",
    r"so many": "up to N",
    r"^(?:What|Such|Those)\b(?!.*\?$)": "begin with the subject",
}
"""Words that hide who does what, by what to write."""
QUOTING = ("docs/ops.md", "docs/support.md")
"""Pages with messages of the compiler in their tables and lists."""


def faults(page: str, text: str) -> list[str]:
    """What is not plain English on a page."""
    found: list[str] = []
    for each in prose.paragraphs(text):
        where = f"{page}:{each.line}:"
        if each.length() > MOST_WORDS_IN_A_PARAGRAPH:
            found.append(f"{where} a paragraph of {each.length()} words: {each.text[:60]}…")
        found += [
            f"{where} a sentence of {count} words: {sentence}"
            for sentence in each.sentences()
            if (count := prose.words(sentence)) > MOST_WORDS_IN_A_SENTENCE
        ]
        found += [
            f"{where} instead of {bad[0]!r}: {better}"
            for sentence in ([] if page in QUOTING else each.sentences())
            for pattern, better in INSTEAD.items()
            if not (each.is_cell and pattern.startswith("^"))
            and (bad := re.search(rf"\b{pattern}", sentence, re.IGNORECASE))
        ]
    found += [
        f"{page}: {count} words under the heading {title!r}; divide them"
        for title, count in prose.sections(text)
        if count > MOST_WORDS_IN_A_SECTION
    ]
    levels = [level for level, _ in prose.headings(text)]
    if levels[:1] != [1] or levels.count(1) != 1 or levels.count(2) < 2:
        found.append(f"{page}: expected one title, then headings, got levels {levels}")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_plain_english(page: str) -> None:
    assert not faults(page, (ROOT / page).read_text())


FINE = (
    "# A page\n\n## What is it?\n\nIt is short.\n\n## What else?\n\n| a | b |\n|---|---|\n| One. | Two. |\n"
)
LONG = " ".join(["word"] * 36)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (FINE.replace("It is short.", f"Short. A {LONG}. Short."), "a sentence of 37 words"),
        (FINE.replace("It is short.", f"- Short.\n- A\n  {LONG}."), "a sentence of 37 words"),
        (FINE.replace("Two.", f"A {LONG}."), "a sentence of 37 words"),
        (FINE.replace("It is short.", "It is short. " * 41), "a paragraph of 123 words"),
        (FINE.replace("It is short.", "It is short.\n\n" * 134), "402 words under the heading 'What is it?'"),
        (FINE.replace("## What else?\n", ""), "expected one title"),
        (FINE.replace("# A page\n", ""), "expected one title"),
        (FINE.replace("It is short.", "It is beside\nthe other."), "instead of 'beside': next to"),
        (FINE.replace("It is short.", "What it is, is short. What is it?"), "instead of 'What': begin with"),
        (FINE.replace("Two.", "It lies in memory."), "instead of 'lies in': is in"),
    ],
)
def test_a_planted_fault_is_found(text: str, fault: str) -> None:
    assert not faults("page.md", FINE)
    found = faults("page.md", text)
    assert len(found) == 1 and fault in found[0], found


@pytest.mark.parametrize(
    "text",
    [
        FINE.replace("It is short.", f"```\n{LONG}\n```"),
        FINE.replace("It is short.", f"It has {', '.join(['`Linear`'] * 40)}."),
        FINE.replace("It is short.", f"It is `{LONG}` and [short]({'x' * 99})."),
    ],
)
def test_code_is_no_prose(text: str) -> None:
    assert not faults("page.md", text)


@pytest.mark.parametrize("to", ["gone.md", "tour.md#gone", "#gone", "../docs/gone/x.md", "pictures/gone.svg"])
def test_a_link_that_leads_nowhere_is_found(to: str) -> None:
    text = f"{FINE}\n[here](#what-else), [there](tour.md#what-does-the-front-end-see), [gone]({to})\n"
    assert prose.unresolved("docs/page.md", text) == [to]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES_OF_THE_README


def test_every_page_is_linked_to_from_another() -> None:
    reached = {
        ((ROOT / page).parent / to.partition("#")[0]).resolve()
        for page in PAGES
        for to in prose.links((ROOT / page).read_text())
        if to.partition("#")[0]
    }
    assert {page for page in PAGES if (ROOT / page).resolve() not in reached} <= {
        "README.md",
        "docs/index.md",
    }


def quoted(page: str) -> set[str]:
    """The words that a page has in backticks, each by itself."""
    return {
        word
        for code in re.findall(r"`([^`]+)`", (ROOT / page).read_text())
        for word in re.findall(r"\w+", code)
    }


@pytest.mark.parametrize("function", ["compile_train_step", "compile_eval_step", "compile_step"])
def test_every_option_is_described(function: str) -> None:
    options = set(inspect.signature(getattr(aicf_mlir, function)).parameters)
    assert options <= quoted("docs/options.md")


@pytest.mark.parametrize("step", [CompiledTrainStep, CompiledEvalStep, CompiledLoopStep])
def test_every_method_is_described(step: type) -> None:
    assert {name for name in dir(step) if not name.startswith("_")} <= quoted("docs/methods.md")


def test_every_variable_and_error_is_described() -> None:
    variables = {
        value for value in vars(environment).values() if isinstance(value, str) and value.startswith("AICF_")
    }
    assert variables and variables <= quoted("docs/environment.md")
    errors = {name for name in aicf_mlir.__all__ if name.endswith("Error")}
    assert errors and errors <= quoted("docs/guide/refused.md")

"""The documents run: Python blocks in order in one namespace per file, console blocks against the tools."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from pkgutil import resolve_name

import children
import pytest
from prose import PAGES, ROOT, unresolved

TREE = "docs/design/index.md"
"""The page that lists the folders."""
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", PAGES)
def test_document_runs(document: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    namespace: dict[str, object] = {}
    for kind, body in BLOCK.findall((ROOT / document).read_text()):
        if kind == "python":
            exec(compile(body, document, "exec"), namespace)
        else:
            run_console(body)


NOT_RUN = {
    ("README.md", "sh"): "make, which runs the tests",
    ("docs/frameworks.md", "py"): "by `make real`, which installs the frameworks",
    ("docs/tools.md", "toml"): "of a package that is not here",
    ("docs/design/index.md", ""): "the pipeline and the tree",
}


def test_no_block_is_left_out():
    found = [
        (page, kind)
        for page in PAGES
        for kind in re.findall(
            r"^ *```(\w*)\n.*?^ *```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
        )
    ]
    run = [(page, kind) for page in PAGES for kind, _ in BLOCK.findall((ROOT / page).read_text())]
    assert {page for page, _ in run} >= {page for page in PAGES if page.startswith("docs/guide/")} - {
        "docs/guide/index.md"
    }
    assert sorted(each for each in found if each not in NOT_RUN) == sorted(run)
    assert NOT_RUN.keys() <= set(found)


def run_console(body: str) -> None:
    """Each `$ command` must print every line below it, in order; `...` skips lines."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        environment_path = f"{Path(sys.executable).parent}:"
        done = children.run(["bash", "-c", f"PATH={environment_path}$PATH; {command}"], cwd=ROOT)
        printed = done.stdout + done.stderr
        position = 0
        for line in expected.splitlines():
            if line.strip() in ("...", ""):
                continue
            found = printed.find(line.strip(), position)
            assert found >= 0, f"$ {command}\nprinted (exit {done.returncode}):\n{printed}\nmissing: {line}"
            position = found + len(line.strip())


@pytest.mark.parametrize("document", PAGES)
def test_links_and_test_names_exist(document: str):
    text = (ROOT / document).read_text()
    assert not unresolved(document, text)
    for path, name in re.findall(r"`(tests/py/\w+/\w+\.py)::(\w+)`", text):
        source = ROOT / path
        assert source.exists() and re.search(rf"\b(def|class) {name}\b", source.read_text()), (
            f"{document} names {path}::{name}, which does not exist"
        )


PATH = re.compile(r"(?:aicf_mlir|csrc|tests|docs|examples|scripts|bench)(?:/[\w.<>-]+)*/?")
"""A path of the repository in a document; `<family>` stands for any name."""


def named_paths(document: str) -> list[str]:
    """What the document puts in backticks and is a path, and the first words of a tree."""
    text = (ROOT / document).read_text()
    quoted = [part.partition("::")[0] for part in re.findall(r"`([^`\n]+)`", text)]
    tree = re.search(r"^## Where is everything\?$.*?^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    listed = [] if tree is None else [line.split()[0] for line in tree[1].splitlines()]
    return [path for path in quoted if "/" in path and PATH.fullmatch(path)] + listed


FILE = re.compile(r"[\w./*<>-]*[\w>*]\.(?:py|h|cpp|cuh?|md|sh)")
"""The end of the path of a file, such as `loops/totals.py`."""


@pytest.mark.parametrize("document", PAGES)
def test_named_files_exist(document: str):
    for name in re.findall(r"`([^`\n]+)`", (ROOT / document).read_text()):
        if FILE.fullmatch(name):
            pattern = re.sub("<.*?>", "*", name)
            tops = ("", "aicf_mlir", "csrc", "tests", "examples", "docs", "bench", "scripts")
            found = (each for top in tops for each in (ROOT / top).glob(f"**/{pattern}" if top else pattern))
            assert next(found, None), f"{document} names {name}, which does not exist"


@pytest.mark.parametrize("document", PAGES)
def test_named_paths_exist(document: str):
    for path in named_paths(document):
        assert any(ROOT.glob(re.sub("<.*?>", "*", path).rstrip("/"))), (
            f"{document} names {path}, which does not exist"
        )


NAME = re.compile(r"`(aicf_mlir(?:\.\w+)+)[`(]")
"""A module of the package, or a function or class of one, in backticks."""


@pytest.mark.parametrize("document", PAGES)
def test_named_modules_and_functions_exist(document: str):
    for name in NAME.findall((ROOT / document).read_text()):
        try:
            resolve_name(name)
        except (ImportError, AttributeError):
            pytest.fail(f"{document} names {name}, which does not exist")


def test_the_tree_is_whole():
    """Every folder of the compiler and of the runtime has its line."""
    folders = {
        str(path.relative_to(ROOT))
        for top in ("aicf_mlir", "csrc")
        for path in (ROOT / top).iterdir()
        if any(path.glob("*.py")) or any(path.glob("**/*.cpp"))
    }
    assert folders <= set(named_paths(TREE))


def test_what_an_op_is_does_not_depend_on_a_device():
    """csrc/op is below everything else."""
    for source in (ROOT / "csrc/op").iterdir():
        included = re.findall(r'#include "([^"]+)"', source.read_text())
        assert all(name.startswith("op/") for name in included), f"{source.name} includes {included}"

"""Which folder may import which: rows that only look back, and circles nowhere; each rule with an import that breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from layers import (
    MOST_AT_THE_TOP,
    MOST_IN_A_CIRCLE,
    MOST_UPWARD,
    PACKAGE,
    ROOT,
    UPWARD,
    Import,
    Tree,
    at_the_top,
    upward,
)

NATIVE = (("op",), ("device",), ("kernels",), ("runtime",), ("bindings", "cpu_level"))
"""Folders of csrc, lowest first."""


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(PACKAGE)


def test_folders_of_the_package_look_down_only(tree: Tree) -> None:
    found = {(each.source, each.target) for each in upward(tree.imports)}
    assert not found - UPWARD.keys(), "an import that looks up"
    assert not UPWARD.keys() - found, "an exception that nobody needs any more"
    assert len(UPWARD) <= MOST_UPWARD


def test_no_circle_between_folders_and_only_small_ones_inside(tree: Tree) -> None:
    for folder, circle in tree.circles():
        assert folder, f"a circle between folders: {circle}"
        assert len(circle) <= MOST_IN_A_CIRCLE, f"a circle inside {folder}: {circle}"
        inside = [
            name for name in circle if (PACKAGE / folder.replace(".", "/") / name / "__init__.py").exists()
        ]
        assert len([name for name in inside if name]) < 2, f"a circle between folders of {folder}: {circle}"


def test_few_things_are_at_the_top() -> None:
    assert len(at_the_top(PACKAGE)) <= MOST_AT_THE_TOP


def planted(folder: Path, files: dict[str, str]) -> Tree:
    """A package with the real layers and these files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    return Tree(folder)


def test_an_import_that_looks_up_is_found(tmp_path: Path) -> None:
    tree = planted(
        tmp_path,
        {
            "ir/roles.py": "def f():\n    from aicf_mlir.passes import fuse\n",
            "passes/new.py": "from typing import TYPE_CHECKING\nfrom aicf_mlir import somewhere\n"
            "if TYPE_CHECKING:\n    from aicf_mlir.runtime import store\n",
            "passes/fuse.py": "import aicf_mlir.step.compile\nfrom aicf_mlir.ir.roles import f\n",
            "step/compile.py": "",
        },
    )
    assert upward(tree.imports) == [
        Import("ir.roles", "passes.fuse"),
        Import("passes.fuse", "step.compile"),
        Import("passes.new", "somewhere"),
    ]
    assert list(tree.circles()) == [("", ["ir", "passes"])]


def test_a_circle_of_three_files_is_found(tmp_path: Path) -> None:
    tree = planted(
        tmp_path,
        {
            "ir/a.py": "from aicf_mlir.ir.b import x\n",
            "ir/b.py": "from aicf_mlir.ir import c\n",
            "ir/c.py": "def f():\n    import aicf_mlir.ir.a\n",
            "ir/d.py": "from aicf_mlir.ir.a import x\n",
        },
    )
    assert list(tree.circles()) == [("ir", ["a", "b", "c"])]
    assert upward(tree.imports) == []


def native_edges() -> Iterator[Import]:
    for path in sorted((ROOT / "csrc").rglob("*")):
        if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
            for line in path.read_text().splitlines():
                if line.startswith('#include "'):
                    own, other = path.relative_to(ROOT / "csrc").parts[0], line.split('"')[1].split("/")[0]
                    yield Import(own, other)


def test_folders_of_csrc_look_down_only() -> None:
    edges = set(native_edges())
    assert edges
    assert not upward(edges, NATIVE)
    assert upward([Import("op", "device")], NATIVE)

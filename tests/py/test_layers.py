"""Which folder may import which: a list that only looks back, so that no circle can arise.

Imports for the type checker alone do not count: nothing runs them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "aicf_mlir"

LAYERS = (
    (
        "errors",
        "_C",
        "processor",
        "garbage",
        "interrupts",
        "atomic_file",
        "trusted_file",
        "dtypes",
        "tool_process",
    ),
    ("environment",),
    ("cpu_kernels", "op_call"),
    ("machine",),
    ("ir",),
    ("codegen",),
    ("optimizers",),
    ("dialects",),
    ("tuning",),
    ("scalars", "interpreters", "costs"),
    ("passes",),
    ("universe", "pipeline", "text"),
    ("stages", "plugins", "describe", "sources"),
    ("frontend", "profiling", "pictures"),
    ("runtime",),
    ("clipping", "loss_scaling", "averaging", "branching"),
    ("eager",),
    ("built_step", "examined_step", "compiled_step", "eval_step", "loop_step", "compile", "compile_body"),
    ("nn", "optim", "loop"),
    ("tools",),
)
"""Folders and files of the package, lowest first; those of one row do not import each other."""
TOGETHER = {
    "built_step",
    "examined_step",
    "compiled_step",
    "eval_step",
    "loop_step",
    "compile",
    "compile_body",
}
"""These know each other: a step can be compiled anew."""

NATIVE = (("op",), ("device",), ("kernels",), ("runtime",), ("bindings", "cpu_level"))
"""Folders of csrc, lowest first."""


def imports(path: Path) -> Iterator[str]:
    """The folders and files of the package that a file imports, itself left out."""
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        pending.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.ImportFrom) and node.module == "aicf_mlir":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aicf_mlir."):
            yield str(node.module).split(".")[1]


def refused(layers: tuple[tuple[str, ...], ...], edges: Iterator[tuple[str, str, str]]) -> list[str]:
    """The imports (file, from, to) that look up, or to the side."""
    height = {name: row for row, names in enumerate(layers) for name in names}
    found: list[str] = []
    for file, source, target in edges:
        if source == target or {source, target} <= TOGETHER:
            continue
        if target not in height:
            found.append(f"{file} imports {target}, which has no place in LAYERS")
        elif height[source] <= height[target]:
            found.append(f"{file}: {source} must not import {target}")
    return found


def package_edges(package: Path) -> Iterator[tuple[str, str, str]]:
    for path in sorted(package.rglob("*.py")):
        source = path.relative_to(package).parts[0].removesuffix(".py")
        if source != "__init__":
            yield from ((str(path.relative_to(package)), source, target) for target in imports(path))


def native_edges() -> Iterator[tuple[str, str, str]]:
    for path in sorted((ROOT / "csrc").rglob("*")):
        if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
            for line in path.read_text().splitlines():
                if line.startswith('#include "'):
                    source, target = (
                        path.relative_to(ROOT / "csrc").parts[0],
                        line.split('"')[1].split("/")[0],
                    )
                    yield str(path.relative_to(ROOT)), source, target


def test_folders_of_the_package_look_down_only() -> None:
    assert not refused(LAYERS, package_edges(PACKAGE))


def test_folders_of_csrc_look_down_only() -> None:
    assert not refused(NATIVE, native_edges())


def test_a_forbidden_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir" / "roles.py").write_text("def f():\n    from aicf_mlir.passes import fuse\n")
    (tmp_path / "passes").mkdir()
    (tmp_path / "passes" / "new.py").write_text(
        "from typing import TYPE_CHECKING\nfrom aicf_mlir import somewhere\n"
        "if TYPE_CHECKING:\n    from aicf_mlir.runtime import store\n"
    )
    assert refused(LAYERS, package_edges(tmp_path)) == [
        "ir/roles.py: ir must not import passes",
        "passes/new.py imports somewhere, which has no place in LAYERS",
    ]

"""The layers of the package, and what its imports make of them: `python tests/py/tools/layers.py` prints the counts.

Imports in functions count, and those for the type checker alone do not: nothing runs them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "aicf_mlir"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "_C"),
    ("machine", "host"),
    ("ir",),
    ("op_call", "kernels", "optimizers"),
    ("dialects",),
    ("text", "analysis", "interpreters"),
    ("passes",),
    ("frontend", "codegen", "universe"),
    ("reports", "tuning"),
    ("stages", "profiling"),
    ("runtime",),
    ("step",),
    ("nn", "optim", "loop", "tools"),
)
"""Folders and files of the package, lowest first; a row imports rows above it in this text, and not itself."""

UPWARD: Mapping[tuple[str, str], str] = {
    (
        "dialects.generated",
        "codegen.schedule",
    ): "a launch of a generated kernel asks its generator for workspace",
    ("passes.fuse.back_to_back", "codegen.schedule"): "a chain is fused where its target has code for it",
    ("passes.fuse.small_updates", "codegen.cuda.products"): "by the tile that a product gets",
    ("passes.fuse.horizontal", "codegen.cuda.horizontal"): "by the part of a launch that a member gets",
    (
        "passes.fuse.sums_of_results",
        "codegen.cuda.rows_and_columns",
    ): "rows take sums of columns where one walk has both",
    ("passes.prefetch", "codegen.cuda.ahead"): "by what a generated kernel can read ahead",
    ("passes.prefetch", "tuning.lock"): "a lock chooses schedules",
    ("passes.persistent_weights", "tuning.lock"): "a lock chooses kernels",
    ("passes.persistent_weights", "tuning.obeyed"): "a lock chooses kernels",
    ("passes.select_kernels", "tuning.lock"): "a lock chooses kernels",
    ("passes.select_kernels", "tuning.obeyed"): "a lock chooses kernels",
}
"""The imports that look up nevertheless, and why. One that goes is taken from here too."""

MOST_UPWARD = 15
MOST_AT_THE_TOP = 30
MOST_IN_A_CIRCLE = 2


@dataclass(frozen=True, order=True)
class Import:
    """One file imports another: names without the package, "" for the package itself."""

    source: str
    target: str


@dataclass(frozen=True)
class Tree:
    """The files of a package by the names of their modules."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, Path]:
        """The compiled module among them, which has a .pyi."""
        files = [*sorted(self.root.rglob("*.py")), *sorted(self.root.rglob("*.pyi"))]
        return {self._name(path): path for path in files}

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def imports(self) -> list[Import]:
        """Every import of one file of the package by another, once."""
        found = {
            Import(name, target)
            for name, path in self.modules.items()
            if path.suffix == ".py"
            for target in self._targets(path)
        }
        return sorted(found)

    def _targets(self, path: Path) -> Iterator[str]:
        pending: list[ast.AST] = [ast.parse(path.read_text())]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                pending += node.orelse
                continue
            pending += ast.iter_child_nodes(node)
            if isinstance(node, ast.ImportFrom):
                package, _, module = (node.module or "").partition(".")
                if package == PACKAGE.name and not node.level:
                    names = [f"{module}.{alias.name}".removeprefix(".") for alias in node.names]
                    yield from {name if self._is_module(name) else module for name in names}
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    package, _, module = alias.name.partition(".")
                    if package == PACKAGE.name:
                        yield module

    def _is_module(self, name: str) -> bool:
        return name in self.modules or (
            "." not in name and name.islower()
        )  # a planted folder may not be there

    def circles(self) -> Iterator[tuple[str, list[str]]]:
        """In each folder, files and folders that reach each other: the folder and what it holds, with its own file as ""."""
        graphs: dict[str, dict[str, set[str]]] = {}
        for each in self.imports:
            own, other = self._places(each.source), self._places(each.target)
            for folder in own.keys() & other.keys():
                if own[folder] != other[folder]:
                    graphs.setdefault(folder, {}).setdefault(own[folder], set()).add(other[folder])
        for folder, graph in sorted(graphs.items()):
            yield from ((folder, circle) for circle in circles_of(graph))

    def _places(self, module: str) -> dict[str, str]:
        """What a module is, or lies in, by each folder above it."""
        parts = [part for part in module.split(".") if part]
        places = {".".join(parts[:depth]): part for depth, part in enumerate(parts)}
        return places if self._is_file(module) else {**places, module: ""}

    def _is_file(self, module: str) -> bool:
        return module in self.modules and self.modules[module].stem != "__init__"


def circles_of(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The sets of at least two nodes that all reach each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, pending = set[str](), [start]
        while pending:
            for other in graph.get(pending.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
        reached[start] = seen
    found = {
        tuple(sorted(other for other in seen if node in reached.get(other, ())))
        for node, seen in reached.items()
    }
    return [list(circle) for circle in sorted(found) if len(circle) > 1]


def top(module: str) -> str:
    """The folder or file of the package that a module is in."""
    return module.partition(".")[0]


def upward(imports: Iterable[Import], layers: tuple[tuple[str, ...], ...] = LAYERS) -> list[Import]:
    """The imports that look up, or to the side; of what has no place in `layers`, all."""
    height = {name: row for row, names in enumerate(layers) for name in names}
    return [
        each
        for each in imports
        if (source := top(each.source)) and (target := top(each.target)) != source
        if target not in height or source not in height or height[source] <= height[target]
    ]


def at_the_top(root: Path) -> list[str]:
    """The folders and files of a package."""
    folders = [path.name for path in root.iterdir() if any(path.glob("*.py"))]
    return sorted([*folders, *(path.name for path in root.glob("*.py"))])


def main() -> None:
    """Print the counts."""
    tree = Tree(PACKAGE)
    circles = list(tree.circles())
    names = at_the_top(PACKAGE)
    print(f"at the top: {len(names)} folders and modules")
    print(f"imports: {len(tree.imports)}, of which {len(upward(tree.imports))} look up")
    print(f"circles between folders: {sum(not folder for folder, _ in circles)}")
    print(
        f"circles inside folders: {', '.join(f'{folder}: {len(circle)}' for folder, circle in circles if folder) or 0}"
    )


if __name__ == "__main__":
    main()

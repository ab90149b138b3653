"""Each test is in a room of tests/py, and finds what it imports there or in tests/py/support, whichever tests run with it."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parents[1]
SUPPORT = "support"
ROOMS = {"frontend", "passes", "codegen", "kernels", "runtime", "tools", "real", "random"}
ROOM_OF = {
    path.stem: path.parent.name
    for path in HERE.glob("*/*")
    if path.suffix == ".py" or (path / "__init__.py").exists()
}


def imported(path: Path) -> set[str]:
    """The modules of tests/py that a file imports, or all files of a folder."""
    found: set[str] = set()
    for file in path.rglob("*.py") if path.is_dir() else [path]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                found.add(str(node.module).partition(".")[0])
            elif isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
    return found & ROOM_OF.keys()


def test_every_test_is_in_a_room() -> None:
    assert [path.name for path in HERE.glob("*.py")] == ["conftest.py"]
    assert {path.parent.relative_to(HERE).as_posix() for path in HERE.rglob("test_*.py")} == ROOMS
    assert set(ROOM_OF.values()) == ROOMS | {SUPPORT}


def test_no_name_is_in_two_rooms() -> None:
    names = Counter(path.name for path in HERE.glob("*/*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_imports_are_of_the_own_room_or_of_support() -> None:
    for name, room in ROOM_OF.items():
        folder = HERE / room / name
        others = imported(folder if folder.is_dir() else folder.with_suffix(".py"))
        strays = {other: ROOM_OF[other] for other in others if ROOM_OF[other] not in (ROOM_OF[name], SUPPORT)}
        assert not strays, f"{ROOM_OF[name]}/{name}: what several rooms import is in support"

"""The documents run: Python blocks in order in one namespace per file, console blocks against the tools."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import children
import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_document_runs(document: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    namespace: dict[str, object] = {}
    for kind, body in BLOCK.findall((ROOT / document).read_text()):
        if kind == "python":
            exec(compile(body, document, "exec"), namespace)
        else:
            run_console(body)


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


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_test_names_exist(document: str):
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert ((ROOT / document).parent / target).exists(), (
            f"{document} links to {target}, which does not exist"
        )
    for path, name in re.findall(r"`(tests/py/\w+\.py)::(\w+)`", text):
        source = ROOT / path
        assert source.exists() and re.search(rf"\b(def|class) {name}\b", source.read_text()), (
            f"{document} names {path}::{name}, which does not exist"
        )

"""Hooks of mkdocs: CONTRIBUTING.md, which is outside of docs/, is a page of the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SOURCE = Path(__file__).parents[1] / "CONTRIBUTING.md"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the page, with its links as they are from inside of docs/."""
    text = SOURCE.read_text().replace("](docs/", "](")
    files.append(File.generated(config, "contributing.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to the file lead to the page."""
    return markdown.replace("](../CONTRIBUTING.md", "](contributing.md")

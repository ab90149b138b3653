"""What a reader meets on a page of Markdown: paragraphs, sentences, headings, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]

FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`]+`(?:[,;]? *(?:or |and )?\n? *`[^`]+`)*")
"""Names that are listed, of which a sentence has any number, are read as one word."""
ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, an item of a list, or a cell of a table; `words` are counted as read, without its markup."""

    line: int
    text: str
    is_cell: bool

    def sentences(self) -> list[str]:
        """Split at `.`, `!` and `?`, where a new sentence can begin."""
        return [part for part in re.split(r"(?<=[.!?])[)\"*_]*\s+(?=[^a-z])", self.text) if part]

    def length(self) -> int:
        """Its words."""
        return words(self.text)


def words(text: str) -> int:
    """What has a letter or a digit, between white space."""
    return sum(any(c.isalnum() for c in word) for word in text.split())


def blanked(pattern: re.Pattern[str], text: str) -> str:
    """The text without the matches, but with their lines."""
    return pattern.sub(lambda found: "\n" * found[0].count("\n"), text)


def paragraphs(text: str) -> Iterator[Paragraph]:
    """All that is prose: not code, not headings, not the rules of tables."""
    gathered: list[str] = []
    first = 0
    for number, line in enumerate([*blanked(FENCE, text).splitlines(), ""], start=1):
        row = line.lstrip().startswith("|")
        if gathered and (row or not line.strip() or ITEM.match(line) or HEADING.match(line)):
            yield Paragraph(first, read("\n".join(gathered)), False)
            gathered = []
        if row:
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            yield from (Paragraph(number, read(cell.strip()), True) for cell in cells if words(cell))
        elif line.strip() and not HEADING.match(line):
            first = first if gathered else number
            gathered.append(ITEM.sub("", line))


def read(text: str) -> str:
    """The text as it is read: a link is its words, code one word."""
    return " ".join(CODE.sub("Code", LINK.sub(r"\1", text)).split())


def headings(text: str) -> list[tuple[int, str]]:
    """Level and words of each, in order."""
    return [(len(marks), title) for marks, title in HEADING.findall(blanked(FENCE, text))]


def sections(text: str) -> Iterator[tuple[str, int]]:
    """Each heading, and how many words of prose come under it before the next; tables are no prose."""
    parts = re.split(r"^#+ (.+)$", blanked(FENCE, text), flags=re.MULTILINE)
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        yield title, sum(each.length() for each in paragraphs(body) if not each.is_cell)


def anchors(text: str) -> set[str]:
    """The names under which the headings of a page can be reached: lower case, hyphens for spaces, no punctuation."""
    found: set[str] = set()
    for _, title in headings(text):
        slug = re.sub(r"[^\w\- ]", "", LINK.sub(r"\1", title).lower()).replace(" ", "-")
        found.add(next(name for name in (slug, *(f"{slug}-{n}" for n in range(1, 99))) if name not in found))
    return found


def links(text: str) -> list[str]:
    """The targets of the links that stay in the repository."""
    return [to for _, to in LINK.findall(blanked(FENCE, text)) if not to.startswith(("http:", "https:"))]


def unresolved(page: str, text: str, root: Path = ROOT) -> list[str]:
    """The links of a page that lead to no file, or to no heading of one."""
    broken: list[str] = []
    for to in links(text):
        name, _, anchor = to.partition("#")
        target = (root / page).parent / name
        there = text if not name else target.read_text() if anchor and target.exists() else ""
        if (name and not target.exists()) or (anchor and anchor not in anchors(there)):
            broken.append(to)
    return broken

"""
Every case beside eager torch: `python -m tests.real [--device cuda] [--only PATTERN...] [--write] [--jobs N] [-v]`.

Prints each outcome that is another one than `missing.txt` says, the table of reasons and the counts. Exit code 1 if a case is
wrong or crashes, is refused for a reason that is not in the table, or has changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryFile

from tests.real import missing
from tests.real.family import MARK

ROOT = Path(__file__).parents[2]
PARTS = 2
"""At least so many, of a family that runs whole: each is a process that imports its packages."""


@dataclass(frozen=True)
class Row:
    """A case that has run."""

    name: str
    outcome: str
    """works, wrong, crash, or the reason of a refusal."""
    detail: str
    seconds: float

    @property
    def is_defect(self) -> bool:
        return self.outcome in ("wrong", "crash", "refused for no known reason")


def families() -> list[str]:
    return sorted(path.stem.removesuffix("_models") for path in Path(__file__).parent.glob("*_models.py"))


def part(
    found: SimpleQueue[Row | None], device: str, family: str, number: int, parts: int, only: Sequence[str]
) -> None:
    """Run one part of a family in a process of its own; its rows as they come."""
    command = [sys.executable, "-m", "tests.real.family", device, family, str(number), str(parts), *only]
    with (
        TemporaryFile("w+") as errors,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8") as child,
    ):
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith(MARK):
                name, result = line.removeprefix(MARK).split("\t", 1)
                found.put(row(name, *json.loads(result)))
        if child.wait():
            errors.seek(0)
            found.put(Row(f"{family}, part {number}", "crash", errors.read()[-2000:], 0.0))


def row(name: str, outcome: str, detail: str, seconds: float) -> Row:
    if outcome == "refused":
        outcome = missing.reason(detail) or "refused for no known reason"
    return Row(name, outcome, detail, seconds)


def run(device: str, only: Sequence[str], jobs: int) -> Generator[Row]:
    """The rows as they come. Of `FAMILY/NAME` only that family is imported, once for all its names."""
    tasks = [
        (family, number, parts, own)
        for family in families()
        if (own := [text for text in only if "/" not in text or text.startswith(f"{family}/")])
        for parts in [max(PARTS, jobs // 4) if {"*", f"{family}/*"} & {*own} else 1]
        for number in range(parts)
    ]
    found = SimpleQueue[Row | None]()
    with ThreadPoolExecutor(jobs) as pool:
        for task in tasks:
            pool.submit(part, found, device, *task).add_done_callback(lambda _: found.put(None))
        left = len(tasks)
        while left:
            if (got := found.get()) is None:
                left -= 1
            else:
                yield got


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", default=["*"], metavar="PATTERN", help="of FAMILY/NAME, as `learning/*`"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--write", action="store_true", help="make missing.txt what this run has found")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-v", action="store_true", help="every case, with the whole text")
    options = parser.parse_args()
    table, rows = missing.expected(), list[Row]()
    for found in run(options.device, options.only, options.jobs):
        rows.append(found)
        changed = found.outcome != table.get(found.name, "works")
        if options.v or changed or found.is_defect:
            was = f" (was: {table.get(found.name, 'works')})" if changed else ""
            text = found.detail if options.v or found.is_defect else found.detail.splitlines()[0]
            print(f"{found.name}: {found.outcome}{was}, {found.seconds} s\n    {text}", flush=True)
    refused = {r.name: r.outcome for r in rows if not r.is_defect and r.outcome != "works"}
    if options.write:
        names = {r.name for r in rows}
        missing.write(
            {n: why for n, why in table.items() if n not in names and options.only != ["*"]} | refused
        )
    return summary(rows, refused, {} if options.write else table)


def summary(rows: list[Row], refused: dict[str, str], table: dict[str, str]) -> int:
    """Print the reasons with their cases, and the counts; the exit code."""
    for why, count in Counter(refused.values()).most_common():
        print(f"{count:4} {why}: {', '.join(sorted(name for name, r in refused.items() if r == why))}")
    count = Counter(r.outcome if r.is_defect or r.outcome == "works" else "refused" for r in rows)
    changed = sum(r.outcome != table.get(r.name, "works") for r in rows) if table else 0
    unknown = count["refused for no known reason"]
    print(
        f"{count['works']} of {len(rows)} work, {count['refused']} refused, {unknown} for no known reason, "
        f"{count['wrong']} wrong, {count['crash']} crash, {changed} changed"
    )
    return int(bool(count["wrong"] or count["crash"] or unknown or changed or not rows))


if __name__ == "__main__":
    sys.exit(main())

"""Wall time by activity, for `--timing`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter


class Timing:
    """Seconds by activity, in the order of their first start."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, name: str, seconds: float) -> None:
        """Count `seconds` for `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @contextmanager
    def measure(self, name: str) -> Generator[None]:
        """Count the time of the block for `name`, also when it fails."""
        start = perf_counter()
        try:
            yield
        finally:
            self.add(name, perf_counter() - start)

    def table(self) -> str:
        """One line for each activity and one for all."""
        total = sum(self.seconds.values())
        rows = [*self.seconds.items(), ("total", total)]
        lines = [f"{spent:10.4f} s {spent / total if total else 0:7.1%}  {name}" for name, spent in rows]
        return "\n".join(["// timing", *lines, ""])

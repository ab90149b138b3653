"""Links of a chain's kernel, one behind the other, with their operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from generated_cases import dense

from aicf_mlir.ir import formula as F
from aicf_mlir.ir.roundings import written
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Link, Outer, Yield
from aicf_mlir.kernels.kernel import Tensor


class ChainBuilder:
    """Links one behind the other, with their operands."""

    def __init__(self, target: str, rows: int, width: int, element: str):
        self.target, self.rows, self.element, self.width = target, rows, element, width
        self.a = dense(element, rows, width)
        self.bs: list[Tensor] = []
        self.xs: list[Tensor] = []
        self.links: list[Link] = []
        self.values = 0

    def x(self, tensor: Tensor) -> tuple[str, int]:
        """An operand of bodies."""
        self.xs.append(tensor)
        return "x", len(self.xs) - 1

    def vector(self, columns: int, element: str, stride: int = 1) -> tuple[str, int]:
        """One that is the same for all rows."""
        return self.x(Tensor(element, (self.rows, columns), (0, stride)))

    def whole(self, columns: int, element: str) -> tuple[str, int]:
        """One of the result's shape."""
        return self.x(dense(element, self.rows, columns))

    def link(
        self,
        columns: int,
        takes: Sequence[tuple[str, int]],
        formula: Callable[..., object],
        uses: Sequence[tuple[str, str]],
        b: int | None = None,
        trans_b: bool = True,
    ) -> int:
        """A link, with the weights of an earlier one or its own; the number of its first value.

        `uses` are element types and letters: w(ritten), s(ummed), n(ext link).
        """
        if b is None:
            b = len(self.bs)
            shape = (columns, self.width) if trans_b else (self.width, columns)
            self.bs.append(dense(self.element, *shape))
        body = F.trace(["f32"] * (1 + len(takes)), formula)
        body = written(body, [], [element for element, _ in uses])
        made = tuple(
            Yield(
                dense(element, self.rows, columns) if "w" in use else None,
                dense("f32", columns) if "s" in use else None,
                "n" in use,
                element,
            )
            for element, use in uses
        )
        same = next((n for n, link in enumerate(self.links) if link.b_number == b), len(self.links))
        self.links.append(Link(body, self.bs[b], b, same, trans_b, tuple(takes), made))
        self.width, self.values = columns, self.values + len(made)
        return self.values - len(made)

    def finish(
        self, rounded: bool = False, outers: Sequence[tuple[int, int | None]] = ()
    ) -> BackToBackKernel:
        """The kernel, which verifies; with a as it is rounded, and with products over rows of these values."""
        widths = [link.n for link in self.links for _ in link.yields]
        results = [
            Outer(
                left, right, dense("f32", widths[left], self.a.shape[1] if right is None else widths[right])
            )
            for left, right in outers
        ]
        made = dense(self.element, *self.a.shape) if rounded else None
        kernel = BackToBackKernel.of(self.target, self.links, self.a, self.bs, self.xs, made, results)
        kernel.verify()
        return kernel

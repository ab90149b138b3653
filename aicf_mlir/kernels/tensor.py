"""An operand or a result as generators see it."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.layouts import Layout


@dataclass(frozen=True)
class Tensor:
    """An operand or a result: element type, shape, strides in elements."""

    element: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int = 256
    """Bytes that divide its address, a power of two."""

    @property
    def layout(self) -> Layout:
        """The layout of its elements, from its first one on."""
        return Layout(self.shape, self.strides)

"""The operands of a link of a kernel.back_to_back and the uses of its values, as text: `b0.T x1 y0 -> write next sum, sum`.

    b0       the product is by operand b[0], [K, N]; b0.T: by its transpose, so that it is [N, K]
    x1       the element of operand x[1], in addition to that of the product
    y0       the element of value 0, counted over all links; the value is of an earlier link
    write    the value is a result of the launch
    next     the next link multiplies it
    sum      its sum over all rows is a result, after the value itself if that is written too
    keep     a later link takes it, or a product after the links, and nothing else does

A value that is not written has its element type, `next bf16`; without one it is f32. After the links come products over all rows,
`y3.T y0`, or `y3.T a` with the operand a; and `a`, if that is an f32: a as it is rounded to be multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.utils.exceptions import VerifyException


@dataclass(frozen=True)
class ValueUses:
    """The uses of one value."""

    write: bool = False
    next: bool = False
    sum: bool = False
    element: str = "f32"
    """The element type that it is rounded to if it is not written."""

    def __str__(self) -> str:
        words = [name for name in ("write", "next", "sum") if getattr(self, name)] or ["keep"]
        return " ".join([*words, *([self.element] if not self.write and self.element != "f32" else [])])


@dataclass(frozen=True)
class LinkText:
    """The text of one link."""

    b: int
    """The number of the operand b."""
    trans_b: bool
    takes: tuple[tuple[str, int], ...]
    """The source of each argument of the body after the product: ("x", number of an operand) or ("y", number of a value)."""
    values: tuple[ValueUses, ...]

    def __str__(self) -> str:
        taken = [f"{kind}{number}" for kind, number in self.takes]
        return " ".join([f"b{self.b}{'.T' * self.trans_b}", *taken, "->", ", ".join(map(str, self.values))])

    @staticmethod
    def parse(text: str) -> LinkText:
        """A link from its text, whose rules the schema has checked."""
        taken, arrow, given = text.partition("->")
        if not arrow:
            raise VerifyException(f"expected what a link takes -> what it gives, got {text!r}")
        b, *names = taken.split()
        takes = tuple((name[0], int(name[1:])) for name in names)
        return LinkText(
            int(b[1:].removesuffix(".T")),
            b.endswith(".T"),
            takes,
            tuple(_uses(words.split()) for words in given.split(",")),
        )


ROUNDED_A = "a"
"""The name of the result that is a, rounded."""


@dataclass(frozen=True)
class OuterText:
    """A product of two values over all rows; of the left one and a where `right` is None."""

    left: int
    right: int | None

    def __str__(self) -> str:
        return f"y{self.left}.T {'a' if self.right is None else f'y{self.right}'}"

    @staticmethod
    def parse(text: str) -> OuterText:
        """A product from its text, whose rules the schema has checked."""
        left, right = text.split()
        return OuterText(int(left[1:].removesuffix(".T")), None if right == "a" else int(right[1:]))


def _uses(words: list[str]) -> ValueUses:
    typed = words[-1] if words[-1] in ("f16", "bf16") else "f32"
    return ValueUses("write" in words, "next" in words, "sum" in words, typed)

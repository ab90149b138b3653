"""The printer of modules: every tool and the API print IR here, and no line grows with the model.

A list that does not fit into `WIDTH` columns is broken between its items. Short lists are filled line by line. Long lists and
lists of labelled items have one item a line, so that a change of one layer is a change of its lines.

    func.func @step(
      %x: tensor<64x256xf32> {aicf.role = "input", aicf.name = "x"},
      %p0.weight: tensor<256x256xf32> {aicf.role = "param", aicf.name = "0.weight"}
    ) -> tensor<f32> {

The `print` of an op needs nothing for this but `printer.print_list`, which knows the column. White space means
nothing to the parser, so broken text reads back; xDSL's own printer prints the same text without the breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import unified_diff
from io import StringIO
from typing import Any, TypeVar, cast

from xdsl.dialects.builtin import (
    AnyDenseElement,
    CallSiteLoc,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    FileLineColLoc,
    FusedLoc,
    NameLoc,
    ShapedType,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation, Region
from xdsl.printer import Printer

Item = TypeVar("Item")

WIDTH = 120
"""The columns of a line; unbreakable text (a name, a label, the few words after a list) may extend beyond."""

FILLED = 16
"""Longer lists have one item a line."""

LONGEST_KEYWORD = 32
"""Characters at the end of a text in which a place for a break is looked for."""

_BREAK = re.compile(r"(( :| \{| [a-z]+)|(?<!->)) *$|$")
"""The end of printed text after which a line may be broken: a colon, brace or keyword then begins the next line."""
_NUMBER = re.compile(r"[-+.\d][-+.\w]*")
_LOCATIONS = (UnknownLoc, FileLineColLoc, NameLoc, FusedLoc, CallSiteLoc)


ELIDED = "__elided__"
"""The text that mlir-opt prints in the place of a literal that it leaves out; both read it."""


def changed_line(text: str, new_text: str) -> str:
    """The first line in which a step is another than it was, in words; empty if the two texts are one."""
    if text == new_text:
        return ""
    lines = unified_diff(text.splitlines(), new_text.splitlines(), lineterm="", n=0)
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    shown = next((line for line in changed if "func.func" not in line), changed[0])
    return f"traced again, a line of the step is `{shown[:1]} {' '.join(shown[1:].split())[:120]}`"


def to_text(
    op: Operation, *, generic: bool = False, locations: bool = False, elide_above: int | None = None
) -> str:
    """
    The text of `op`, usually a module, without a newline at the end; with `locations`.

    The `generic` form is for machines: xDSL's, an op a line. A literal of more than `elide_above` elements is left
    out, unless they are all one number.
    """
    stream = StringIO()
    kind = ElidingPrinter if generic else WrappingPrinter
    printer = kind(stream, print_generic_format=generic, print_debuginfo=locations)
    printer.elide_above = elide_above
    printer.print_op(op)
    return stream.getvalue()


def print_words(printer: Printer, items: Iterable[Item], print_fn: Callable[[Item], Any]) -> None:
    """Print ` item` for each; where lines are broken, an item that does not fit begins one."""
    if isinstance(printer, WrappingPrinter):
        printer.print_words(list(items), print_fn)
        return
    for item in items:
        printer.print_string(" ")
        print_fn(item)


class ElidingPrinter(Printer):
    """A printer that leaves out the elements of large literals."""

    elide_above: int | None = None

    def print_attribute(self, attribute: Attribute) -> None:
        """Print `attribute`, or that its elements are left out."""
        shown: Attribute = attribute
        if self.elide_above is not None and isinstance(attribute, DenseIntOrFPElementsAttr):
            literal = cast(DenseIntOrFPElementsAttr[AnyDenseElement], attribute)
            if len(literal) > self.elide_above and not literal.is_splat():
                shown = DenseResourceAttr.from_params(ELIDED, literal.type)
        super().print_attribute(shown)


@dataclass(eq=False, repr=False)
class WrappingPrinter(ElidingPrinter):
    """xDSL's printer with lists that are broken where they do not fit."""

    _held: str = field(default="", init=False)
    """Printed, but not yet in the stream: a line may be broken here."""
    _last: str = field(default="", init=False)
    """The last printed text; an opening bracket makes a list a delimited one."""
    _must_break: bool = field(default=False, init=False)
    """True if the line ends here, unless a bracket or comma follows."""
    _flat: bool = field(default=False, init=False)
    """True if lists are being measured: then they are not broken."""

    @property
    def _column(self) -> int:
        return self._current_column + len(self._held)

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        """Print `text`; spaces and ` : ` at its end wait for the next text."""
        if self._flat:
            super().print_string(text, indent=indent)
            return
        if self._must_break and text.strip():
            self._must_break = False
            if text.lstrip()[0] not in ",)]}>":
                self._break()
                text = text.lstrip()
        text = self._held + text
        end = _BREAK.search(text, max(0, len(text) - LONGEST_KEYWORD))
        assert end is not None
        self._held = end[0]
        self._last = text[-1:] or self._last
        super().print_string(text[: end.start()], indent=indent)

    def _print_new_line(self, indent: int | None = None, print_message: bool = True) -> None:
        super().print_string(self._held.rstrip())
        self._held, self._must_break = "", False
        super()._print_new_line(indent, print_message)

    def _break(self) -> None:
        """Go on at the next line; waiting text begins it."""
        waiting, self._held = self._held.strip(), ""
        with self.indented():
            self._print_new_line()
        self._held = f"{waiting} " if waiting not in ("", "{") else waiting

    def print_list(
        self, elems: Iterable[Item], print_fn: Callable[[Item], Any], delimiter: str = ", "
    ) -> None:
        """Print the items with `delimiter` between them; a list with commas is broken if it does not fit."""
        items = list(elems)
        if self._flat or delimiter != ", " or not items or isinstance(items[0], Region):
            super().print_list(items, print_fn, delimiter)
        else:
            self._print_items(items, print_fn)

    def print_words(self, items: Sequence[Item], print_fn: Callable[[Item], Any]) -> None:
        """Print ` item` for each, on the next line if this one has no room for it."""
        texts = [""] * len(items) if self._flat else self._measured(items, print_fn)
        for item, text in zip(items, texts, strict=True):
            self.print_string(" ")
            if self._held and self._column + len(text) > WIDTH:
                self._break()
            with self.indented():
                print_fn(item)

    def _print_items(self, items: Sequence[Item], print_fn: Callable[[Item], Any]) -> None:
        """Print them on this line or, between no brackets, on the next one; else several a line, or one a line."""
        texts = self._measured(items, print_fn)
        is_delimited = self._last in ("(", "[", "{", "<")
        width = sum(map(len, texts)) + 2 * (len(texts) - 1)
        is_plain = not any("{" in text or "\n" in text for text in texts)
        is_filled = all(_NUMBER.fullmatch(text) for text in texts) or (is_plain and len(texts) <= FILLED)
        fits_below = self._column + width > WIDTH >= self._next_column + width
        if self._held and is_plain and fits_below:
            self._break()
        is_short = self._column + width <= WIDTH or (len(items) == 1 and not is_delimited)
        if is_short and is_plain:
            self.print_string(", ".join(texts))
        elif is_short:
            super().print_list(items, print_fn)
        elif is_filled:
            self._fill(items, texts, print_fn)
        elif is_delimited:
            with self.indented():
                for index, (item, text) in enumerate(zip(items, texts, strict=True)):
                    self.print_string("," if index else "")
                    self._print_new_line()
                    self._print_item(item, text, print_fn)
            self._print_new_line()
        else:
            self._one_a_line(items, texts, print_fn)

    def _print_item(self, item: Item, text: str, print_fn: Callable[[Item], Any]) -> None:
        """Print an item; `text` is its form on one line."""
        if "\n" not in text and self._column + len(text) <= WIDTH:
            self.print_string(text)
        else:
            print_fn(item)

    @property
    def _next_column(self) -> int:
        """The column at which the next line would begin."""
        return (self._indent + 1) * self.indent_num_spaces + len(self._held.strip())

    def _fill(self, items: Sequence[Item], texts: Sequence[str], print_fn: Callable[[Item], Any]) -> None:
        """Print the items on as few lines as they fit in, beginning with this one."""
        for index, (item, text) in enumerate(zip(items, texts, strict=True)):
            self.print_string(", " if index else "")
            fits_below = self._next_column + len(text) < WIDTH
            if self._held and self._column + len(text) >= WIDTH and (index or fits_below):
                self._break()
            with self.indented():
                self._print_item(item, text, print_fn)

    def _one_a_line(
        self, items: Sequence[Item], texts: Sequence[str], print_fn: Callable[[Item], Any]
    ) -> None:
        """Print items without brackets, one on each line; the text after them begins a line, too."""
        for index, (item, text) in enumerate(zip(items, texts, strict=True)):
            self.print_string(", " if index else "")
            if self._held and (index or self._column > self._next_column + len(": ")):
                self._break()
            with self.indented():
                self._print_item(item, text, print_fn)
        self._must_break = True

    def _measured(self, items: Sequence[Item], print_fn: Callable[[Item], Any]) -> list[str]:
        """The texts of the items, each on one line; nothing is printed."""
        texts: list[str] = []
        with self._into(StringIO()) as stream:
            for item in items:
                print_fn(item)
                texts.append(stream.getvalue())
                stream.seek(0)
                stream.truncate()
        return texts

    @contextmanager
    def _into(self, stream: StringIO) -> Generator[StringIO]:
        before = self.stream, self._flat, self._held, self._last, self._must_break
        position = self._current_line, self._current_column
        self.stream, self._flat, self._held, self._must_break = stream, True, "", False
        try:
            yield stream
        finally:
            self.stream, self._flat, self._held, self._last, self._must_break = before
            self._current_line, self._current_column = position

    def print_function_type(
        self, input_types: Iterable[Attribute], output_types: Iterable[Attribute]
    ) -> None:
        """Print `(types) -> (types)`; on the next line if this one has no room for it."""
        inputs, outputs = list(input_types), list(output_types)
        self._print_horizontal(lambda: super(WrappingPrinter, self).print_function_type(inputs, outputs))

    def print_attribute(self, attribute: Attribute) -> None:
        """Print an attribute; a location goes to the next line if this one has no room for it, and so does a type."""
        is_location = isinstance(attribute, _LOCATIONS) and not self.printing_location
        if is_location or (isinstance(attribute, ShapedType) and not self._flat):
            self._print_horizontal(lambda: super(WrappingPrinter, self).print_attribute(attribute))
        else:
            super().print_attribute(attribute)

    def _print_horizontal(self, print_it: Callable[[], None]) -> None:
        """Let `print_it` print on this line, or on the next one if this has no place for all of it."""
        if self._flat or not self._held:
            print_it()
            return
        (text,) = self._measured([None], lambda _: print_it())
        if self._column + len(text) > WIDTH:
            self._break()
        if self._column + len(text) > WIDTH:
            print_it()
        else:
            self.print_string(text)

"""How the tools print a module: its form, and the dumps around passes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from io import StringIO
from typing import cast

from xdsl.dialects.builtin import AnyDenseElement, DenseIntOrFPElementsAttr, DenseResourceAttr, ModuleOp
from xdsl.ir import Attribute
from xdsl.passes import ModulePass
from xdsl.printer import Printer

ELIDED = "__elided__"
"""What mlir-opt prints in the place of a literal that it leaves out; both read it."""


@dataclass(frozen=True)
class Form:
    """How a module is printed."""

    generic: bool = False
    locations: bool = False
    elide_above: int | None = None
    """A literal with more elements is left out, unless they are all one number."""

    def text(self, module: ModuleOp) -> str:
        """The module in this form."""
        stream = StringIO()
        printer = ElidingPrinter(stream, print_generic_format=self.generic, print_debuginfo=self.locations)
        printer.elide_above = self.elide_above
        printer.print_op(module)
        return stream.getvalue() + "\n"


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


@dataclass
class Dumps:
    """The module before and after passes, on standard error."""

    text: Callable[[ModuleOp], str]
    before: Collection[str]
    """The passes before which the module is printed."""
    after: Collection[str]
    only_changed: bool = False
    """After a pass, print only what is another text than before it."""
    _seen: str | None = None

    def before_pass(self, coming: ModulePass, module: ModuleOp) -> None:
        """Print the module if it is asked for before `coming`."""
        if coming.name in self.before:
            self._dump("before", coming, self.text(module))
        if self.only_changed and coming.name in self.after:
            self._seen = self.text(module)

    def after_pass(self, done: ModulePass, module: ModuleOp) -> None:
        """Print the module if it is asked for after `done`."""
        if done.name in self.after and (text := self.text(module)) != self._seen:
            self._dump("after", done, text)

    def _dump(self, when: str, current: ModulePass, text: str) -> None:
        sys.stderr.write(f"// -----// IR dump {when} {current.name} //----- //\n{text}\n")

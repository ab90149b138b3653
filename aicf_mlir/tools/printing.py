"""The output of modules by the tools: its form, and the dumps around passes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf_mlir.ir.printing import to_text


@dataclass(frozen=True)
class Form:
    """The form in which a module is printed."""

    generic: bool = False
    locations: bool = False
    elide_above: int | None = None
    """A literal with more elements is left out, unless they are all one number."""

    def text(self, module: ModuleOp) -> str:
        """The module in this form."""
        text = to_text(module, generic=self.generic, locations=self.locations, elide_above=self.elide_above)
        return f"{text}\n"


@dataclass
class Dumps:
    """The module before and after passes, on standard error."""

    text: Callable[[ModuleOp], str]
    before: Collection[str]
    """The passes before which the module is printed."""
    after: Collection[str]
    only_changed: bool = False
    """True to print after a pass only if the text has changed."""
    _seen: str | None = None

    def before_pass(self, coming: ModulePass, module: ModuleOp) -> None:
        """Print the module if requested before `coming`."""
        if coming.name in self.before:
            self._dump("before", coming, self.text(module))
        if self.only_changed and coming.name in self.after:
            self._seen = self.text(module)

    def after_pass(self, done: ModulePass, module: ModuleOp) -> None:
        """Print the module if requested after `done`."""
        if done.name in self.after and (text := self.text(module)) != self._seen:
            self._dump("after", done, text)

    def _dump(self, when: str, current: ModulePass, text: str) -> None:
        sys.stderr.write(f"// -----// IR dump {when} {current.name} //----- //\n{text}\n")

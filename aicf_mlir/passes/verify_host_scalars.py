"""Prove that no scalar is frozen unseen; see `aicf_mlir.analysis.scalars` for the kinds of scalars."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf_mlir.analysis.scalars import check_update, scalars, table


@dataclass(frozen=True)
class VerifyHostScalarsPass(ModulePass):
    """
    Prove that every scalar is a host scalar, a guarded value or a constant with a source line; print the table.

    The table goes to standard error. Refused are constants without a source, and updates whose hyperparameters
    are no host scalars. The module is not changed.

    Options:
      quiet: print no table
    """

    name = "verify-host-scalars"

    quiet: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rows = scalars(op)
        for inner in op.walk():
            check_update(inner)
        if not self.quiet:
            sys.stderr.write(table(rows))

"""The function attribute `aicf.optimizer`: one dictionary per param group, in the optimizer's order.

    [{kind = "adam", params = ["0.weight", "0.bias"], amsgrad = false, decoupled = true, maximize = false}]

It tells which update is compiled in; values that may change between steps are host scalars of the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf_mlir.optimizers import KINDS
from aicf_mlir.optimizers.rule import UpdateRule

OPTIMIZER = "aicf.optimizer"


@dataclass(frozen=True)
class ParamGroup:
    """One param group: its update rule and the names of its parameters."""

    rule: UpdateRule
    params: tuple[str, ...]

    def with_params(self, params: Sequence[str]) -> ParamGroup:
        """The same group over other parameters."""
        return replace(self, params=tuple(params))

    def to_attribute(self) -> DictionaryAttr:
        """The dictionary that `parse_group` reads."""
        entries: dict[str, Attribute] = {
            "kind": StringAttr(self.rule.KIND),
            "params": ArrayAttr([StringAttr(name) for name in self.params]),
        }
        return DictionaryAttr(entries | self.rule.attributes())


def parse_groups(attribute: Attribute) -> list[ParamGroup]:
    """The groups in an `aicf.optimizer` attribute; raises VerifyException for anything malformed."""
    if not isa(attribute, ArrayAttr[DictionaryAttr]):
        raise VerifyException(f"expected {OPTIMIZER} to be an array of dictionaries, got {attribute}")
    groups = [parse_group(index, entry) for index, entry in enumerate(attribute.data)]
    names = [name for group in groups for name in group.params]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise VerifyException(f"expected each parameter once in {OPTIMIZER}, got {', '.join(twice)} again")
    return groups


def compiled_groups(module: ModuleOp) -> list[ParamGroup]:
    """The param groups in the first function of `module` that has some; none for a step without an optimizer."""
    found = (op.attributes[OPTIMIZER] for op in module.ops if OPTIMIZER in op.attributes)
    return parse_groups(next(found, ArrayAttr[Attribute]([])))


def parse_group(index: int, attribute: DictionaryAttr) -> ParamGroup:
    """One param group; `index` is for messages."""
    where = f"{OPTIMIZER}, group {index}"
    entries = dict(attribute.data)
    kind, params = entries.pop("kind", None), entries.pop("params", None)
    if not isinstance(kind, StringAttr) or kind.data not in KINDS:
        raise VerifyException(f"{where}: expected kind to be one of {', '.join(KINDS)}, got {kind}")
    if not isa(params, ArrayAttr[StringAttr]):
        raise VerifyException(f"{where}: expected params to be the names of arguments, got {params}")
    try:
        rule = KINDS[kind.data].of_attributes(entries)
    except VerifyException as error:
        raise VerifyException(f"{where}: {error}") from None
    return ParamGroup(rule, tuple(name.data for name in params))

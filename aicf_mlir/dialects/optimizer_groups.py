"""
The function attribute `aicf.optimizer`: one dictionary per param group, in the optimizer's order.

    [{kind = "adam", params = ["0.weight", "0.bias"], amsgrad = false, decoupled = true, maximize = false}]

It says which update is compiled in; what may change between steps is a meta argument of the function.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf_mlir.dialects import optim
from aicf_mlir.ir.properties import bool_attr, is_true

OPTIMIZER = "aicf.optimizer"


class UpdateRule(abc.ABC):
    """
    How one kind of optimizer updates a parameter. The fields of a subclass are its flags in the attribute.

    A rule names the arguments that the update needs and builds its ops; `meta` maps those names to values.
    """

    @property
    @abc.abstractmethod
    def metas(self) -> tuple[str, ...]:
        """The hyperparameters of a group: the names of its meta arguments."""

    @property
    @abc.abstractmethod
    def states(self) -> tuple[str, ...]:
        """What is kept for each parameter, under torch's names."""

    @property
    def counts_steps(self) -> bool:
        """Whether the update depends on the number of steps; `meta` then has "step", the advanced counters."""
        return True

    @property
    def written_metas(self) -> tuple[str, ...]:
        """The metas that `advance` computes for each parameter: its results after the counters."""
        return ()

    @abc.abstractmethod
    def advance(self, step: SSAValue, meta: Mapping[str, SSAValue]) -> Operation:
        """The op that counts the step, once per group."""

    @abc.abstractmethod
    def update(
        self, p: SSAValue, g: SSAValue, states: Sequence[SSAValue], meta: Mapping[str, SSAValue], index: int
    ) -> Operation:
        """The op that updates parameter `index` of the group; its results replace p and then `states`."""


@dataclass(frozen=True)
class Sgd(UpdateRule):
    """torch.optim.SGD."""

    momentum: bool = False
    nesterov: bool = False
    maximize: bool = False

    @property
    def metas(self) -> tuple[str, ...]:
        return ("lr", "weight_decay", *(("momentum", "dampening") if self.momentum else ()))

    @property
    def states(self) -> tuple[str, ...]:
        return ("momentum_buffer",) if self.momentum else ()

    @property
    def counts_steps(self) -> bool:
        return self.momentum

    def advance(self, step: SSAValue, meta: Mapping[str, SSAValue]) -> Operation:
        return optim.AdvanceOp(step)

    def update(
        self, p: SSAValue, g: SSAValue, states: Sequence[SSAValue], meta: Mapping[str, SSAValue], index: int
    ) -> Operation:
        lr, weight_decay = meta["lr"], meta["weight_decay"]
        if not self.momentum:
            return optim.SgdOp(p, g, lr, weight_decay, maximize=self.maximize)
        momentum = [*states, meta["momentum"], meta["dampening"], meta["step"]]
        flags = {"nesterov": self.nesterov, "maximize": self.maximize}
        return optim.SgdOp(p, g, lr, weight_decay, momentum, index, **flags)


@dataclass(frozen=True)
class Adam(UpdateRule):
    """torch.optim.Adam and, `decoupled`, torch.optim.AdamW."""

    amsgrad: bool = False
    decoupled: bool = False
    maximize: bool = False

    @property
    def metas(self) -> tuple[str, ...]:
        return ("lr", "beta1", "beta2", "eps", "weight_decay", "bc1_pin", "bc2_pin", "bc1_inv", "bc2_inv")

    @property
    def states(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if self.amsgrad else ()))

    @property
    def written_metas(self) -> tuple[str, ...]:
        return ("bc1_inv", "bc2_inv")

    def advance(self, step: SSAValue, meta: Mapping[str, SSAValue]) -> Operation:
        return optim.AdvanceOp(step, [meta[name] for name in ("beta1", "beta2", "bc1_pin", "bc2_pin")])

    def update(
        self, p: SSAValue, g: SSAValue, states: Sequence[SSAValue], meta: Mapping[str, SSAValue], index: int
    ) -> Operation:
        names = ("lr", "beta1", "beta2", "eps", "weight_decay", "bc1_inv", "bc2_inv")
        hyperparameters = [meta[name] for name in names]
        flags = {"decoupled": self.decoupled, "maximize": self.maximize}
        return optim.AdamOp(p, g, states, hyperparameters, index, **flags)


KINDS: dict[str, type[Sgd] | type[Adam]] = {"sgd": Sgd, "adam": Adam}
"""By the `kind` in the attribute."""


@dataclass(frozen=True)
class Group:
    """One param group: its update rule and the names of its parameters."""

    rule: Sgd | Adam
    params: tuple[str, ...]

    def with_params(self, params: Sequence[str]) -> Group:
        """The same group over other parameters."""
        return replace(self, params=tuple(params))

    def to_attribute(self) -> DictionaryAttr:
        """The dictionary that `parse_group` reads."""
        kind = next(name for name, rule in KINDS.items() if isinstance(self.rule, rule))
        entries: dict[str, Attribute] = {
            "kind": StringAttr(kind),
            "params": ArrayAttr([StringAttr(name) for name in self.params]),
        }
        return DictionaryAttr(entries | {flag: bool_attr(value) for flag, value in asdict(self.rule).items()})


def parse_groups(attribute: Attribute) -> list[Group]:
    """The groups in an `aicf.optimizer` attribute; raises VerifyException for anything malformed."""
    if not isa(attribute, ArrayAttr[DictionaryAttr]):
        raise VerifyException(f"expected {OPTIMIZER} to be an array of dictionaries, got {attribute}")
    groups = [parse_group(index, entry) for index, entry in enumerate(attribute.data)]
    names = [name for group in groups for name in group.params]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise VerifyException(f"expected each parameter once in {OPTIMIZER}, got {', '.join(twice)} again")
    return groups


def compiled_groups(module: ModuleOp) -> list[Group]:
    """The param groups in the first function of `module` that has some; none for a step without an optimizer."""
    found = (op.attributes[OPTIMIZER] for op in module.ops if OPTIMIZER in op.attributes)
    return parse_groups(next(found, ArrayAttr[Attribute]([])))


def parse_group(index: int, attribute: DictionaryAttr) -> Group:
    """One param group; `index` is for messages."""
    where = f"{OPTIMIZER}, group {index}"
    entries = dict(attribute.data)
    kind, params = entries.pop("kind", None), entries.pop("params", None)
    if not isinstance(kind, StringAttr) or kind.data not in KINDS:
        raise VerifyException(f"{where}: expected kind to be one of {', '.join(KINDS)}, got {kind}")
    if not isa(params, ArrayAttr[StringAttr]):
        raise VerifyException(f"{where}: expected params to be the names of arguments, got {params}")
    rule = KINDS[kind.data]
    legal = [field.name for field in fields(rule)]
    flags: dict[str, bool] = {}
    for flag, value in entries.items():
        if flag not in legal:
            raise VerifyException(f"{where}: expected the flags {', '.join(legal)}, got {flag}")
        if not isa(value, BoolAttr):
            raise VerifyException(f"{where}: expected {flag} to be true or false, got {value}")
        flags[flag] = is_true(value)
    if flags.get("nesterov") and not flags.get("momentum"):
        raise VerifyException(f"{where}: expected momentum = true beside nesterov = true")
    return Group(rule(**flags), tuple(name.data for name in params))

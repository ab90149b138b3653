"""The compiler's description of an optimizer: one rule, one file. The fields of a rule are its flags, which are compiled in.

A rule has torch's spelling, the conversion from param groups to hyperparameters and back, the state of each parameter, the op of
an update and its computation. Everything else queries the rule: nothing outside this folder knows an optimizer by name.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import BoolAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf_mlir.ir.formula import Scalar
from aicf_mlir.ir.properties import bool_attr, is_true
from aicf_mlir.optimizers.advance import Correction
from aicf_mlir.optimizers.slots import STEP, OptimizerSlot


@dataclass(frozen=True)
class TorchClass:
    """A class of torch that a rule implements; its lower-case name is the one on the command line."""

    module: str
    title: str
    fixed: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Flags that follow from the class, independent of its param groups."""

    @property
    def option(self) -> str:
        """The value of the option `kind`."""
        return self.title.lower()


@dataclass(frozen=True)
class Setting:
    """An entry of a param group that holds numbers, and the hyperparameters that they are."""

    key: str
    examples: Mapping[str, float]
    """The example of each hyperparameter, for tools that have no optimizer. Two, for an entry that is a pair."""
    places: tuple[int, ...] = ()
    """The places in the entry, if it has other members too."""

    @property
    def slots(self) -> tuple[str, ...]:
        """The hyperparameters, in the order of the entry."""
        return tuple(self.examples)

    @property
    def members(self) -> Mapping[str, int] | None:
        """The place of each hyperparameter in the entry; None for an entry that is the number itself."""
        if len(self.examples) == 1 and not self.places:
            return None
        return dict(zip(self.slots, self.places or range(len(self.examples)), strict=True))

    def replaced(self, entry: Any, name: str, value: float) -> Any:
        """The entry with another value of one hyperparameter."""
        if self.members is None:
            return value
        return tuple(value if i == self.members[name] else old for i, old in enumerate(entry))


@dataclass(frozen=True)
class Flag:
    """A field of the rule, and the entry of a param group that switches it on. A setting does so by not being zero."""

    name: str
    key: str
    optional: bool = False
    """True if older torch has no such entry."""


@dataclass(frozen=True)
class UpdateRule(abc.ABC):
    """The update of a parameter by one kind of optimizer. The fields of a subclass are its flags in `aicf.optimizer`.

    A rule names the arguments that the update needs and builds its ops; `arguments` maps those names to values.
    """

    KIND: ClassVar[str]
    """The `kind` in `aicf.optimizer`."""
    TORCH: ClassVar[tuple[TorchClass, ...]]
    SETTINGS: ClassVar[tuple[Setting, ...]]
    FLAGS: ClassVar[tuple[Flag, ...]]
    REQUIRES: ClassVar[Mapping[str, str]] = {}
    """A flag, and the other that must be set with it."""
    REFUSED: ClassVar[Mapping[str, str]] = {
        "differentiable": "differentiable=True, which is not supported; use False"
    }
    """Entries of a param group that must be false or missing, and the message for one that is not."""
    CORRECTIONS: ClassVar[tuple[Correction, ...]] = ()
    """The values that `advance` computes for each parameter in addition to its counter."""
    COUNTS_IN_STATE: ClassVar[bool] = False
    """True if torch keeps the step in a parameter's state, or not at all."""
    VECTORS: ClassVar[tuple[str, ...]] = ()
    """Further numbers, one f32 in the state of each parameter, which `advance` replaces as it does the counters."""
    INITIAL: ClassVar[Mapping[str, str]] = {}
    """For each state that is not zero in the beginning: the entry of the optimizer's defaults that fills it."""

    # ---- its parts ----

    @property
    def flags(self) -> dict[str, bool]:
        """The options that are compiled in."""
        return {row.name: getattr(self, row.name) for row in fields(self)}

    def attributes(self) -> dict[str, Attribute]:
        """The entries of the rule in `aicf.optimizer`, in addition to the kind and the parameters."""
        return {name: bool_attr(value) for name, value in self.flags.items()}

    @classmethod
    def of_attributes(cls, entries: Mapping[str, Attribute]) -> Self:
        """The rule that `attributes` describes. Raises VerifyException for anything malformed."""
        legal = [row.name for row in fields(cls)]
        flags: dict[str, bool] = {}
        for flag, value in entries.items():
            if flag not in legal:
                raise VerifyException(f"expected the flags {', '.join(legal)}, got {flag}")
            if not isa(value, BoolAttr):
                raise VerifyException(f"expected {flag} to be true or false, got {value}")
            flags[flag] = is_true(value)
        rule = cls(**flags)
        if lacking := rule.lacks():
            raise VerifyException(f"expected {lacking[1]} = true beside {lacking[0]} = true")
        return rule

    def described(self) -> dict[str, Any]:
        """The description of the rule in a checkpoint, in JSON types."""
        return {"kind": self.KIND, **self.flags}

    @classmethod
    def complete(cls) -> Self:
        """The rule with every flag set: it has all hyperparameters and states that there may be."""
        return cls(**{row.name: True for row in fields(cls)})

    @classmethod
    def entries(cls) -> tuple[str, ...]:
        """The entries of a param group that matter."""
        return tuple(dict.fromkeys([row.key for row in (*cls.SETTINGS, *cls.FLAGS)]))

    @classmethod
    def setting_slots(cls) -> tuple[str, ...]:
        """The hyperparameters that they hold."""
        return tuple(slot for setting in cls.SETTINGS for slot in setting.slots)

    @classmethod
    def setting_of(cls, name: str) -> Setting:
        """The entry that holds a hyperparameter."""
        return next(setting for setting in cls.SETTINGS if name in setting.slots)

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """The flags that a class of torch leaves open."""
        fixed = {name for torch_class in cls.TORCH for name in torch_class.fixed}
        return tuple(flag.name for flag in cls.FLAGS if flag.name not in fixed)

    @classmethod
    def examples(cls) -> dict[str, float]:
        """A value for each host scalar."""
        given = {slot: value for setting in cls.SETTINGS for slot, value in setting.examples.items()}
        for row in cls.CORRECTIONS:
            given |= {row.pin: float("nan"), row.name: 1.0}
        return given

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """The hyperparameters that the host sets, in the order of the arguments."""
        return self.setting_slots()

    @property
    def host_scalars(self) -> tuple[str, ...]:
        """The names of a group's host scalars."""
        pins = (row.pin for row in self.CORRECTIONS)
        return (*self.hyperparameters, *pins, *self.written_scalars)

    @property
    def written_scalars(self) -> tuple[str, ...]:
        """The host scalars that `advance` computes for each parameter: its results after the counters."""
        return tuple(row.name for row in self.CORRECTIONS)

    @property
    @abc.abstractmethod
    def states(self) -> tuple[str, ...]:
        """The states of each parameter, under torch's names."""

    @property
    def counts_steps(self) -> bool:
        """True if the update depends on the number of steps; `arguments` then has "step", the advanced counters."""
        return True

    @property
    def counters(self) -> tuple[str, ...]:
        """The counters that `advance` replaces for each parameter of a group: its first results."""
        return (STEP, *self.VECTORS) if self.counts_steps else ()

    def group_slots(self, group: int) -> list[OptimizerSlot]:
        """The slots of a param group as a whole: host scalars, then the counters."""
        scalars = [OptimizerSlot(group, name) for name in self.host_scalars]
        return scalars + [OptimizerSlot(group, name, counts=True) for name in self.counters]

    def state_slots(self, group: int, param: str) -> list[OptimizerSlot]:
        """The slots of a parameter."""
        return [OptimizerSlot(group, name, param) for name in self.states]

    # ---- its update ----

    @abc.abstractmethod
    def advance(self, arguments: Mapping[str, SSAValue], element: Attribute) -> Operation:
        """The op that counts the step, once per group; `element` is f64 if that is the type of a parameter, else f32.

        Its results replace the `counters`, then the `written_scalars`; others are only read, by `update`.
        """

    @property
    def advanced(self) -> tuple[str, ...]:
        """The names of all its results."""
        return (*self.counters, *self.written_scalars)

    @abc.abstractmethod
    def update(
        self,
        p: SSAValue,
        g: SSAValue,
        states: Sequence[SSAValue],
        arguments: Mapping[str, SSAValue],
        index: int,
    ) -> Operation:
        """The op that updates parameter `index` of the group; its results replace p and then `states`."""

    # ---- its update, in the scalar language ----

    COMBINED: ClassVar[Callable[..., dict[str, Scalar]] | None] = None
    """The scalars that `UPDATED` takes, by name, computed once in f64 and rounded to the type of the parameters.

    Its arguments are the scalars that are there and the flags.
    """
    UPDATED: ClassVar[Callable[..., dict[str, Scalar]] | None] = None
    """The results by name, of the tensors that exist, the gradient among them, of the results of `COMBINED`, and of the flags."""

    # ---- its refusals ----

    def lacks(self) -> tuple[str, str] | None:
        """A flag that is set without the other that it requires, and that other."""
        return next(
            ((a, b) for a, b in self.REQUIRES.items() if getattr(self, a) and not getattr(self, b)), None
        )

    @classmethod
    def of_options(cls, chosen: TorchClass, flags: Mapping[str, bool]) -> Self:
        """The rule that options describe; `flags` has the flags of all rules. Raises ValueError for options that do not fit."""
        own = {name: value for name, value in flags.items() if name in cls.options()}
        foreign = {name: value for name, value in flags.items() if name not in own}
        rule = cls(**own, **chosen.fixed)
        if any(foreign.values()) or rule.lacks():
            wanted = [f"{other}=true with {name}=true" for name, other in cls.REQUIRES.items()]
            wanted += [_none_of(list(foreign))] if foreign else []
            text = wanted[0] if len(wanted) == 1 else f"{', '.join(wanted[:-1])}, and {wanted[-1]},"
            raise ValueError(f"expected {text} for kind={chosen.option}")
        return rule


def _none_of(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"no {names[0]}"
    return f"neither {', '.join(names[:-1])} nor {names[-1]}"

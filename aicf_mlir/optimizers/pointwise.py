"""
Rules that are formulas: the scalars of a group in one generated launch, then an update of each parameter, which are one.

    %step.next, %clr = optim.scalars %step, %lr, … {rule = "adamax"}
    %w.next, %w.exp_avg.next, … = optim.update %w, %g, %w.exp_avg, …, %clr, … {index = 0, rule = "adamax"}

The scalars are computed in f64, from the hyperparameters and the counters of each parameter, and rounded once.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    var_operand_def,
    var_result_def,
)
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.body import COMPUTE, Body
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import expect_tensors, expect_type
from aicf_mlir.ir.formula import Scalar, trace
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.optimizers.op import GRADIENT, OptimOp, expect_index, expect_step
from aicf_mlir.optimizers.rule import UpdateRule
from aicf_mlir.optimizers.slots import STEP

PARAMETER = "p"
"""The operand of every update that its first result replaces."""


@dataclass(frozen=True)
class PointwiseRule(UpdateRule):
    """The update of a parameter by one kind of optimizer, element by element.

    `COMBINED` has the hyperparameters, `step` (with this one) and the `VECTORS` by name, all of f64; the new `VECTORS` are among
    its results. `UPDATED` has p, g, the states and the rest by name, and gives the new p and states.
    """

    COUNTS_IN_STATE = True

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        off = {flag.key for flag in self.FLAGS if not getattr(self, flag.name)}
        return tuple(slot for setting in self.SETTINGS if setting.key not in off for slot in setting.slots)

    @property
    def switches(self) -> dict[str, bool]:
        """The flags without a setting: they are present or not."""
        settings = {setting.key for setting in self.SETTINGS}
        return {flag.name: getattr(self, flag.name) for flag in self.FLAGS if flag.key not in settings}

    @property
    def scalars(self) -> tuple[str, ...]:
        """The scalars of the group that `update` reads in addition to the tensors."""
        return scalar_body(self, "f32")[1]

    @property
    def advanced(self) -> tuple[str, ...]:
        return (*self.counters, *self.scalars)

    def advance(self, arguments: Mapping[str, SSAValue], element: Attribute) -> Operation:
        return ScalarsOp(self, [arguments[name] for name in (*self.counters, *self.hyperparameters)], element)

    def update(
        self,
        p: SSAValue,
        g: SSAValue,
        states: Sequence[SSAValue],
        arguments: Mapping[str, SSAValue],
        index: int,
    ) -> Operation:
        return UpdateOp(self, [p, g, *states, *(arguments[name] for name in self.scalars)], index)


@lru_cache(maxsize=256)
def scalar_body(rule: PointwiseRule, element: str) -> tuple[Body, tuple[str, ...]]:
    """The body of counters and hyperparameters, and the names of its scalars. It gives the new counters and the scalars that
    updates read, of type `element`.
    """
    names = (*rule.counters, *rule.hyperparameters)
    made: dict[str, Scalar] = {}

    def body(*values: Scalar) -> list[Scalar]:
        given = {name: value.cast("f64") for name, value in zip(names, values, strict=True)}
        step = values[0] + 1.0
        assert rule.COMBINED is not None
        made.update(rule.COMBINED(**{**given, STEP: step.cast("f64")}, **rule.switches))  # pyright: ignore
        counters = [made.pop(name).cast("f32") for name in rule.VECTORS]
        return [step, *counters, *(value.cast(element) for value in made.values())]

    types = ["f32"] * len(rule.counters) + ["f64"] * len(rule.hyperparameters)
    return trace(types, body), tuple(made)


@lru_cache(maxsize=256)
def update_body(rule: PointwiseRule, element: str, scalar: str) -> Body:
    """The body of p, g and states of an element type, and of scalars: it gives the new p and states."""
    names = (PARAMETER, GRADIENT, *rule.states)
    tensor = COMPUTE[element]

    def body(*values: Scalar) -> list[Scalar]:
        tensors = dict(zip(names, values, strict=False))
        rest = [value.cast(tensor) for value in values[len(names) :]]
        made = rule.UPDATED(  # pyright: ignore[reportOptionalCall]
            **tensors, **dict(zip(rule.scalars, rest, strict=True)), **rule.switches
        )
        return [made[name] for name in (PARAMETER, *rule.states)]

    types = [tensor] * len(names) + [scalar] * len(rule.scalars)
    return trace(types, body, elements=[element] * len(names))


class PointwiseOp(OptimOp, GeneratedInterface, abc.ABC):
    """An op of a rule that is a formula."""

    rule = prop_def(StringAttr)
    flags = prop_def(ArrayAttr[StringAttr], default_value=ArrayAttr[StringAttr]([]))

    def update_rule(self) -> PointwiseRule:
        """The rule with its flags. Raises VerifyException if there is none."""
        from aicf_mlir.optimizers import KINDS

        known = [name for name, rule in KINDS.items() if issubclass(rule, PointwiseRule)]
        if self.rule.data not in known:
            raise VerifyException(f"expected rule to be one of {', '.join(known)}, got {self.rule.data}")
        rule: Any = KINDS[self.rule.data]
        flags = [flag.data for flag in self.flags]
        legal = [flag.name for flag in rule.FLAGS]
        if wrong := [flag for flag in flags if flag not in legal]:
            raise VerifyException(f"expected flags among {', '.join(legal)}, got {wrong[0]}")
        return rule(**dict.fromkeys(flags, True))

    @property
    def title(self) -> str:
        return f"{self.rule.data}_{self.name.rpartition('.')[2]}"

    @staticmethod
    def described(rule: PointwiseRule) -> dict[str, Attribute]:
        """The properties that describe the rule."""
        flags = [StringAttr(name) for name, value in asdict(rule).items() if value]
        return {"rule": StringAttr(rule.KIND), "flags": ArrayAttr(flags)}


@irdl_op_definition
class ScalarsOp(PointwiseOp):
    """The op of step' = step + 1 and the other counters of each parameter of a group, and of the scalars that its update reads.

    Operands: the counters, tensor<nxf32> each, then the hyperparameters. Results: the new counters, then the scalars,
    tensor<nxf32> or tensor<nxf64> each.
    """

    name = "optim.scalars"

    step = operand_def(TensorType)
    rest = var_operand_def(TensorType)
    next_step = result_def(TensorType)
    made = var_result_def(TensorType)

    def __init__(self, rule: PointwiseRule, operands: Sequence[SSAValue], element: Attribute):
        counters = [tensor_type(operands[0])] * len(rule.counters)
        scalars = [TensorType(element, shape_of(operands[0]))] * len(rule.scalars)
        super().__init__(
            operands=[operands[0], operands[1:]],
            properties=self.described(rule),
            result_types=[counters[0], [*counters[1:], *scalars]],
        )

    def verify_(self) -> None:
        expect_tensors(self)
        rule = self.update_rule()
        expect_step(self.step)
        names, results = (*rule.counters, *rule.hyperparameters), rule.advanced
        if (len(self.operands), len(self.results)) != (len(names), len(results)):
            raise VerifyException(
                f"expected ({', '.join(names)}) -> ({', '.join(results)}), "
                f"got {len(self.operands)} operands and {len(self.results)} results"
            )
        count = len(rule.counters)
        given = dict(zip(names, self.operands, strict=True))
        self.expect_hyperparameters(**{name: given[name] for name in rule.hyperparameters})
        for name, value in (
            list(given.items())[:count] + list(zip(results, self.results, strict=True))[:count]
        ):
            expect_type(name, value, tensor_type(self.step))
        wide = {element_name(element_type(value)) for value in self.results[count:]}
        for name, value in list(zip(results, self.results, strict=True))[count:]:
            if wide not in ({"f32"}, {"f64"}) or shape_of(value) != shape_of(self.step):
                raise VerifyException(
                    f"expected {name} of one element of f32, or all of f64, for each of {tensor_type(self.step)}, "
                    f"got {tensor_type(value)}"
                )

    def body(self) -> Body:
        elements = [element_name(element_type(value)) for value in self.results]
        return scalar_body(self.update_rule(), elements[-1])[0]


@irdl_op_definition
class UpdateOp(PointwiseOp):
    """A step of the rule for one parameter.

    Operands: p, g and the states, all of one type, then the scalars of the group, from which it reads the element `index`.
    Results: the new p and states.
    """

    name = "optim.update"

    p = operand_def(TensorType)
    g = operand_def(TensorType)
    rest = var_operand_def(TensorType)
    index = prop_def(IntegerAttr.constr(i64))
    next_p = result_def(TensorType)
    next_states = var_result_def(TensorType)

    def __init__(self, rule: PointwiseRule, operands: Sequence[SSAValue], index: int):
        kind = tensor_type(operands[0])
        super().__init__(
            operands=[operands[0], operands[1], operands[2:]],
            properties={"index": IntegerAttr(index, i64), **self.described(rule)},
            result_types=[kind, [kind] * len(rule.states)],
        )

    def verify_(self) -> None:
        expect_tensors(self)
        rule = self.update_rule()
        names = (PARAMETER, GRADIENT, *rule.states, *rule.scalars)
        if (len(self.operands), len(self.results)) != (len(names), 1 + len(rule.states)):
            raise VerifyException(
                f"expected ({', '.join(names)}) -> ({', '.join((PARAMETER, *rule.states))}), "
                f"got {len(self.operands)} operands and {len(self.results)} results"
            )
        tensors = 2 + len(rule.states)
        given = list(zip(names, self.operands, strict=True))
        self.expect_like_parameter(self.p, **dict(given[1:tensors]))
        self.expect_like_parameter(
            self.p,
            **{
                f"{name}'": value for name, value in zip((PARAMETER, *rule.states), self.results, strict=True)
            },
        )
        for name, value in given[tensors:]:
            if len(shape_of(value)) != 1 or element_name(element_type(value)) not in ("f32", "f64"):
                raise VerifyException(
                    f"expected {name} of type tensor<nxf32> or tensor<nxf64>, got {tensor_type(value)}"
                )
            expect_type(name, value, tensor_type(given[tensors][1]))
            expect_index(self.index.value.data, name, value)

    @property
    def domain(self) -> tuple[int, ...]:
        return shape_of(self.p)

    @property
    def picked(self) -> Mapping[int, int]:
        first = len(self.operands) - len(self.update_rule().scalars)
        return dict.fromkeys(range(first, len(self.operands)), self.index.value.data)

    @property
    def arguments(self) -> Sequence[tuple[SSAValue, Sequence[int]]]:
        picked = self.picked
        rank = len(self.domain)
        return [(value, () if at in picked else range(rank)) for at, value in enumerate(self.operands)]

    def body(self) -> Body:
        rule = self.update_rule()
        scalar = element_name(element_type(self.operands[-1])) if rule.scalars else "f32"
        return update_body(rule, element_name(element_type(self.p)), scalar)

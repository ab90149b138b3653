"""A random function of nn ops in the making: every op is appended together with what torch computes for it.

Each value is known in float64 (`exact`), with how far rounding may have carried each element (`drift`). An op is only
kept where that much, several times over, neither jumps its results nor its gradients: at such a point two right answers
may be far apart, as on both sides of a kink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, TensorType
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters.numerics import (
    FLOATS,
    NUMPY_TYPES,
    Array,
    compute_type,
    precision,
    round_to,
    widen,
)
from aicf_mlir.ir.dtypes import ELEMENT_TYPES, element_name
from aicf_mlir.ir.interfaces import DifferentiableInPartsInterface, DifferentiableInterface
from aicf_mlir.ir.signature import Label, set_results
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type

MARGIN = 8.0
"""Drifts between a value and what must not jump."""

PATTERNS = 5
"""Disturbed evaluations of each op."""

LARGEST = 1e4
"""Magnitudes beyond are not kept: float16 ends at 65504."""

JUMP, WILD, TINY = 0.3, 0.1, 1e-30
"""What a gradient and a result may change by beside the operands, as a part of their size, and where this is 0."""

Reference = Callable[..., Any]
"""From torch tensors to a tensor or several."""


class Underived(Exception):
    """Torch has no derivative of the op."""


class Rejected(Exception):
    """The op is not drawn here: it is not defined for these operands, or they are too near to a jump."""


@dataclass
class Value:
    """A value of the function."""

    ssa: SSAValue
    element: str
    exact: torch.Tensor
    """In float64, integers or booleans, as torch has it; part of one autograd graph."""
    drift: torch.Tensor
    """Of each element; 0 where it is exact."""
    trained: bool
    """Whether a gradient arrives at a parameter from here."""
    used: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.exact.shape)

    @property
    def is_float(self) -> bool:
        return self.element in FLOATS


def to_torch(array: Array) -> torch.Tensor:
    """Floats as float64, integers as int64."""
    wide = widen(array)
    return torch.from_numpy(np.array(wide.astype(np.int64) if wide.dtype.kind in "iu" else wide))


OPEN = frozenset({"nn.attention", "nn.attention_grad", "nn.attention_mask_grad"})
"""Ops whose documentation does not say what a NaN or an infinity at a key that a query does not see is good for."""


@dataclass
class Graph:
    """The function so far."""

    rng: np.random.Generator
    element: str
    """Of most floats."""
    special: bool
    """Whether some elements of its arguments are NaN, infinities and zeros of both signs."""
    block: Block = field(default_factory=Block)
    arguments: list[tuple[Label, Array]] = field(default_factory=list[tuple[Label, Array]])
    leaves: list[Value] = field(default_factory=list[Value])
    """The arguments as values."""
    values: list[Value] = field(default_factory=list[Value])
    """All that an op may read."""
    plants_halves: bool = False
    """Whether results of 16 bits stand among the arguments, which torch computes anew."""

    def argument(self, array: Array, element: str, trained: bool = False) -> Value:
        """A new argument with this value, as rounded to its element type; a parameter where it is `trained`."""
        number = len(self.arguments)
        role, name = ("param", f"p{number}") if trained else ("input", f"x{number}")
        stored = round_to(np.asarray(array), element)
        if self.special and element in FLOATS:
            stored = self.sprinkled(stored)
        ssa = self.block.insert_arg(TensorType(ELEMENT_TYPES[element], stored.shape), number)
        ssa.name_hint = name
        self.arguments.append((Label(role, name), stored))
        exact = to_torch(stored)
        if trained:
            exact.requires_grad_()
        value = Value(ssa, element, exact, torch.zeros(exact.shape, dtype=torch.float64), trained)
        self.values.append(value)
        self.leaves.append(value)
        return value

    def sprinkled(self, array: Array) -> Array:
        """With a few special values among the elements."""
        chosen = self.rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf], array.shape)
        return np.where(self.rng.random(array.shape) < 0.04, chosen, array).astype(array.dtype)

    def emit(
        self,
        build: Callable[..., Operation],
        reference: Reference,
        operands: Sequence[Value],
        *,
        last: bool = False,
    ) -> list[Value]:
        """Append an op and return its results; raises `Rejected` where it stays away.

        The `last` ops, which nothing but others of them reads, are kept wherever they are.
        """
        try:
            op = build(*(operand.ssa for operand in operands))
            op.verify()
        except VerifyException as error:
            raise Rejected(str(error)) from error
        trained = any(operand.trained for operand in operands) and isinstance(op, DifferentiableInterface)
        if (
            isinstance(op, nn.CastOp)
            and operands[0].is_float
            and element_name(element_type(op.result)) in FLOATS
        ):
            reference = torch.clone  # without the rounding, which the drift tells
        try:
            results = self.judged(op, reference, operands, trained, last)
        except Underived:
            results = self.judged(op, reference, operands, False, last)
        self.block.add_op(op)
        for operand in operands:
            operand.used = True
        self.values += results
        return results

    def judged(
        self, op: Operation, reference: Reference, operands: Sequence[Value], trained: bool, last: bool
    ) -> list[Value]:
        """The results, if the op is defined here and its operands are away from its jumps."""
        if self.special and op.name in OPEN:
            raise Rejected("what it makes of hidden elements that are not numbers is left open")
        inputs = [operand.exact for operand in operands]
        if trained:
            self.slopes(reference, operands, trained)
        exact = evaluated(reference, inputs if trained else [each.detach() for each in inputs])
        elements = [element_name(element_type(result)) for result in op.results]
        if [tuple(each.shape) for each in exact] != [shape_of(result) for result in op.results]:
            raise Rejected("torch computes another shape")
        kinds = [element in FLOATS for element in elements]
        if [each.is_floating_point() for each in exact] != kinds:
            raise Rejected("torch computes another type")
        for each in exact:
            if not last and each.is_floating_point() and each.numel():
                wild = each.isnan() | (each.abs() > LARGEST)
                if bool((wild & each.isfinite()).any()) or (not self.special and bool(wild.any())):
                    raise Rejected("too large, or not a number")
        if not (last or self.special):
            turned = evaluated(reference, [other_zeros(operand.exact.detach()) for operand in operands])
            if any(bool(distance(one.detach(), two).any()) for one, two in zip(exact, turned, strict=True)):
                raise Rejected("it depends on the signs of zeros, which nobody promises")
        drifts = (
            [torch.zeros(each.shape, dtype=torch.float64) for each in exact]
            if last
            else self.drifts(reference, operands, exact, elements, trained)
        )
        stopped = op.without_gradient if isinstance(op, DifferentiableInPartsInterface) else ()
        flows = [
            each.requires_grad and result not in stopped
            for each, result in zip(exact, op.results, strict=True)
        ]
        return [
            Value(result, element, each if flowing else each.detach(), drift, flowing)
            for result, element, each, drift, flowing in zip(
                op.results, elements, exact, drifts, flows, strict=True
            )
        ]

    def drifts(
        self,
        reference: Reference,
        operands: Sequence[Value],
        exact: Sequence[torch.Tensor],
        elements: Sequence[str],
        trained: bool,
    ) -> list[torch.Tensor]:
        """How far rounding carries each result; raises `Rejected` where it may jump, or its gradient."""
        detached = [each.detach() for each in exact]
        certain = not any(bool(operand.drift.any()) for operand in operands)
        exactly = [representable(each, element) for each, element in zip(detached, elements, strict=True)]
        if certain and all(exactly):
            return [torch.zeros(each.shape, dtype=torch.float64) for each in detached]
        results, slopes = self.slopes(reference, operands, trained and not certain)
        worst = [torch.zeros(each.shape, dtype=torch.float64) for each in detached]
        for pattern in range(PATTERNS):
            moved = self.slopes(reference, operands, trained and not certain, pattern)
            for number, (before, after) in enumerate(zip(results, moved[0], strict=True)):
                worst[number] = torch.maximum(worst[number], distance(before, after))
            for before, after in zip(slopes, moved[1], strict=True):
                if bool((distance(before, after) > JUMP * (before.abs() + rms(before)) + TINY).any()):
                    raise Rejected("its gradient jumps near its operands")
        found: list[torch.Tensor] = []
        for each, element, drift in zip(detached, elements, worst, strict=True):
            size = each.double().abs().nan_to_num(0.0, 0.0, 0.0) + rms(each.double())
            if certain:
                drift = drift.clamp(max=WILD * size)
            elif bool((drift > WILD * size * (element in FLOATS) + TINY).any()):
                raise Rejected("it jumps near its operands, or nothing is left of them")
            last = precision(NUMPY_TYPES[element])[0] * size if element in FLOATS else 0.0 * size
            found.append(drift * (element in FLOATS) / MARGIN + last)
        return found

    def slopes(
        self, reference: Reference, operands: Sequence[Value], trained: bool, pattern: int | None = None
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Results, and gradients of a fixed sum of them, at the operands or at some beside them."""
        inputs = [self.beside(operand, pattern, number) for number, operand in enumerate(operands)]
        leaves = [each.requires_grad_() for each in inputs if trained and each.is_floating_point()]
        results = evaluated(reference, inputs)
        flowing = [each for each in results if each.requires_grad]
        gradients: list[torch.Tensor] = []
        if leaves and flowing:
            cotangents = [
                torch.linspace(0.5, 1.5, each.numel(), dtype=each.dtype).reshape(each.shape)
                for each in flowing
            ]
            try:
                found = gradients_of(flowing, leaves, cotangents)
            except RuntimeError as error:
                raise Underived from error
            gradients = [each for each in found if each is not None]
        return [each.detach() for each in results], gradients

    def beside(self, operand: Value, pattern: int | None, number: int) -> torch.Tensor:
        """The operand, moved by some drifts: all up or down, neighbours in turn, or at random."""
        exact = operand.exact.detach().clone()
        if pattern is None or not operand.is_float:
            return exact
        own = precision(compute_type(NUMPY_TYPES[operand.element]))[0]
        amount = MARGIN * (operand.drift + own * exact.abs().nan_to_num(0.0, 0.0, 0.0))
        if pattern < 2:
            return exact + amount * (1 if (pattern + number) % 2 else -1)
        signs = torch.from_numpy(np.asarray(self.rng.choice([-1.0, 1.0], operand.shape)))
        return exact + amount * signs

    def finish(self, results: Sequence[tuple[Value, Label]]) -> ModuleOp:
        """The function, with these results."""
        self.block.add_op(func.ReturnOp(*(value.ssa for value, _ in results)))
        types = [tensor_type(value.ssa) for value, _ in results]
        function = func.FuncOp(
            "program",
            (self.block.arg_types, types),
            Region(self.block),
            arg_attrs=ArrayAttr([label.to_attribute() for label, _ in self.arguments]),
        )
        set_results(function, [(value.ssa, label) for value, label in results])
        return ModuleOp([function])


def gradients_of(
    results: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor] | None = None,
) -> Sequence[torch.Tensor | None]:
    """By torch; None of a leaf that no result depends on."""
    return torch.autograd.grad(results, leaves, cotangents, allow_unused=True)


def evaluated(reference: Reference, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What torch computes, in float64 and int64; raises `Rejected` where torch refuses."""
    try:
        found = reference(*inputs)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise Rejected(str(error)) from error
    results = found if isinstance(found, tuple) else (found,)
    return [
        each.double() if each.is_floating_point() else each.long() if each.dtype != torch.bool else each
        for each in results
    ]


def other_zeros(values: torch.Tensor) -> torch.Tensor:
    """With zeros of the other sign."""
    return torch.where(values == 0, -values, values) if values.is_floating_point() else values


def representable(exact: torch.Tensor, element: str) -> bool:
    """Whether the element type has all these numbers."""
    if element not in FLOATS:
        return True
    stored = to_torch(round_to(exact.numpy(), element))
    return bool(((stored == exact) | (stored.isnan() & exact.isnan())).all())


def distance(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Of each element; infinite between numbers and NaN, or infinities and others."""
    if before.shape != after.shape:
        raise Rejected("a gradient comes and goes")
    before, after = before.double(), after.double()
    same = (before == after) | (before.isnan() & after.isnan())
    return torch.where(same, 0.0, (before - after).abs().nan_to_num(torch.inf))


def rms(values: torch.Tensor) -> float:
    """Root mean square of the finite elements."""
    finite = values[values.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0

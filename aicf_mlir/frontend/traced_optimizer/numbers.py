"""Python numbers that stay alive while an optimizer's step is traced: arithmetic on them becomes part of the step.

A number of a param group stands for the value that the group will hold: the step computes all that depends on it. If
the optimizer reads its value instead, to compare it or to count with it, the answer is a condition of the trace.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from aicf_mlir.frontend import source
from aicf_mlir.ir.locations import SourceLocation

_python: Any = operator
_torch: Any = torch
Values = Mapping[str, float]
"""The numbers of all param groups, by the names of their slots."""
Expression = Callable[[Values], float]


@dataclass(frozen=True)
class Condition:
    """A fact about the numbers that the trace has found and that must stay true."""

    expression: Callable[[Values], object]
    outcome: object
    where: SourceLocation | None

    def broken(self, values: Values) -> str:
        """What the optimizer does with these numbers that the step would not do; empty while the condition holds."""
        try:
            same = self.expression(values) == self.outcome
        except (ArithmeticError, TypeError, ValueError) as error:
            return f"raises {type(error).__name__} now: {error}; give it another value"
        return "" if same else "would decide otherwise now; call recompile()"


class LiveNumber(torch.SymFloat):
    """A number of a param group, or the result of Python arithmetic on them."""

    def __init__(self, node: Any, expression: Expression, values: Values, conditions: list[Condition]):
        super().__init__(node)
        self._expression = expression
        self._values = values
        self._conditions = conditions

    def computed(self, name: str, function: Callable[..., Any], *others: Any, total: bool = False) -> Any:
        """Return the result of a method of SymFloat that is `function` of this number and others, `total` as in `of`."""
        made = getattr(torch.SymFloat, name)(self, *others)
        if any(map(is_unknown, others)):
            return made
        return self.of(made, function, *others, total=total)

    def of(self, made: Any, function: Callable[..., Any], *others: Any, total: bool = False) -> Any:
        """Return `made` as a number that is `function` of this one and others; `total`: Python has a result for all numbers.

        Otherwise it is a condition that Python has one: where it raises, a kernel has an infinity or a NaN.
        """
        parts = [expression_of(part) for part in (self, *others)]
        if not isinstance(made, torch.SymFloat):
            return made
        symbol: Any = vars(made)["node"]

        def expression(values: Values) -> float:
            return function(*(part(values) for part in parts))

        def has_result(values: Values) -> bool:
            if isinstance(expression(values), complex):
                raise ValueError("a power of a negative number is complex")
            return True

        if not total:
            self._conditions.append(Condition(has_result, has_result(self._values), source.here()))
        return LiveNumber(symbol, expression, self._values, self._conditions)

    def found(self, function: Callable[..., Any], *others: Any) -> Any:
        """Return the value of `function` of this number and others, which is a condition from here on."""
        parts = [expression_of(part) for part in (self, *others)]

        def expression(values: Values) -> object:
            return function(*(part(values) for part in parts))

        outcome = expression(self._values)
        self._conditions.append(Condition(expression, outcome, source.here()))
        return outcome

    @property
    def known(self) -> float:
        """Return its value for the numbers in the groups now, which is no condition."""
        return self._expression(self._values)

    def evaluate(self, values: Values) -> float:
        """Return its value for these numbers in the groups."""
        return self._expression(values)

    def __bool__(self) -> bool:
        return self.found(bool)

    def __float__(self) -> float:
        return self.found(float)

    def __int__(self) -> Any:
        return self.found(int)

    def __index__(self) -> int:
        return self.found(_python.index)

    def __hash__(self) -> int:
        return self.found(hash)

    def __repr__(self) -> str:
        return self.found(repr)

    def __pow__(self, other: Any) -> Any:
        made = powered(self, other)
        return made if made is NotImplemented or is_unknown(other) else self.of(made, _python.pow, other)

    def __rpow__(self, other: Any) -> Any:
        made = powered(other, self)
        return made if is_unknown(other) else self.of(made, swapped(_python.pow), other)

    def __truediv__(self, other: Any) -> Any:
        return self.computed("__float_truediv__", _python.truediv, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.computed("__rfloat_truediv__", swapped(_python.truediv), other)

    def __floordiv__(self, other: Any) -> Any:
        return self._quotient(floor_divided(self, other), _python.floordiv, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._quotient(floor_divided(other, self), swapped(_python.floordiv), other)

    def _quotient(self, made: Any, function: Callable[..., Any], other: Any) -> Any:
        return made if is_unknown(other) else self.of(made, function, other)

    def __mod__(self, other: Any) -> Any:
        return _torch.SymFloat.__mod__(self, _divisor(other))

    def __rmod__(self, other: Any) -> Any:
        return _torch.SymFloat.__rmod__(_divisor(self), other)


def _divisor(number: Any) -> Any:
    """Return the number, which must not become 0: Python raises then, and a kernel does not."""
    if isinstance(number, LiveNumber) and not number.found(bool):
        raise ZeroDivisionError("modulo by zero")
    return number


def expression_of(part: Any) -> Expression:
    """Return the expression of a number in terms of the numbers of the groups."""
    return part.evaluate if isinstance(part, LiveNumber) else lambda _: part


def is_unknown(number: Any) -> bool:
    """True if a number is on the device only."""
    return isinstance(number, torch.SymFloat) and not isinstance(number, LiveNumber)


def powered(base: Any, exponent: Any) -> Any:
    """Return a power by tensors: SymFloat's checks that its base is not negative, which torch 2.11 cannot export."""
    if isinstance(base, torch.Tensor) or isinstance(exponent, torch.Tensor):
        return NotImplemented
    parts: list[torch.Tensor] = [_torch.scalar_tensor(part, dtype=torch.float64) for part in (base, exponent)]
    return torch.pow(*parts).item()


def floor_divided(a: Any, b: Any) -> Any:
    """Return `a // b` by tensors, which agree with Python: 1 // 0.1 is 9, and the floor of 1 / 0.1 is 10."""
    parts: list[torch.Tensor] = [_torch.scalar_tensor(part, dtype=torch.float64) for part in (a, b)]
    return torch.floor_divide(*parts).item()


def swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the function with its arguments swapped."""
    return lambda a, b: function(b, a)


def _arithmetic(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: LiveNumber, *others: Any) -> Any:
        if not all(isinstance(other, (int, float, torch.SymFloat, torch.SymInt)) for other in others):
            return NotImplemented
        return self.computed(name, function, *others, total=True)

    return method


def _comparison(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: LiveNumber, other: Any) -> Any:
        if is_unknown(other):
            return getattr(torch.SymFloat, name)(self, other)
        if not isinstance(other, (int, float, LiveNumber)):
            return NotImplemented
        return self.found(function, other)

    return method


for _name in ("add", "sub", "mul"):
    _function = getattr(operator, _name)
    setattr(LiveNumber, f"__{_name}__", _arithmetic(f"__{_name}__", _function))
    setattr(LiveNumber, f"__r{_name}__", _arithmetic(f"__r{_name}__", swapped(_function)))
for _name, _function in (("__neg__", _python.neg), ("__abs__", abs)):
    setattr(LiveNumber, _name, _arithmetic(_name, _function))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(LiveNumber, f"__{_name}__", _comparison(f"__{_name}__", getattr(operator, _name)))


def _least(better: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return `min` or `max` of numbers, some of them live.

    As Python's own, it keeps the first number unless a later one is `better`: beside a NaN, the order decides.
    `torch.sym_min` and `torch.sym_max` swap their arguments, so numbers of the device are compared by tensors.
    """

    def chosen(first: Any, second: Any) -> Any:
        live = next((each for each in (first, second) if isinstance(each, LiveNumber)), None)
        numbers: list[torch.Tensor] = [
            _torch.scalar_tensor(each, dtype=torch.float64) for each in (first, second)
        ]
        made: Any = _torch.where(better(*reversed(numbers)), *reversed(numbers)).item()
        if live is None or is_unknown(first) or is_unknown(second):
            return made
        parts = (plain, second) if live is first else (swapped(plain), first)
        return live.of(made, *parts, total=True)

    def function(*given: Any, **options: Any) -> Any:
        if options or len(given) < 2 or not any(isinstance(each, torch.SymFloat) for each in given):
            return plain(*given, **options)
        result = given[0]
        for each in given[1:]:
            symbolic = isinstance(result, torch.SymFloat) or isinstance(each, torch.SymFloat)
            result = chosen(result, each) if symbolic else plain(result, each)
        return result

    return function


def _of_tensor(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of numbers by torch's: SymFloat has none, or one whose result is an integer. With further arguments, as
    digits or a base, it is Python's function of the value.
    """

    def function(x: Any, *rest: Any) -> Any:
        if not isinstance(x, torch.SymFloat):
            return plain(x, *rest)
        if rest:
            return plain(float(x), *rest)
        made: Any = getattr(_torch.scalar_tensor(x, dtype=torch.float64), name)().item()
        return x.of(made, plain) if isinstance(x, LiveNumber) else made

    return function


@contextmanager
def python_functions() -> Generator[None]:
    """Let Python's own functions of numbers accept live numbers too, in any thread; for all others they stay unchanged."""
    names = ("sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tanh", "atan")
    names += ("floor", "ceil")
    replaced: list[tuple[Any, str, Any]] = [
        (builtins, "min", _least(torch.lt, min)),
        (builtins, "max", _least(torch.gt, max)),
        (builtins, "round", _of_tensor("round", round)),
        (math, "pow", _power(math.pow)),
        (torch.SymFloat, "__pow__", powered),
        (torch.SymFloat, "__rpow__", swapped(powered)),
        (torch.SymFloat, "__floordiv__", floor_divided),
        (torch.SymFloat, "__rfloordiv__", swapped(floor_divided)),
        *((math, name, _of_tensor(name, getattr(math, name))) for name in names),
    ]
    before = [(where, name, getattr(where, name)) for where, name, _ in replaced]
    try:
        for where, name, function in replaced:
            setattr(where, name, function)
        yield
    finally:
        for where, name, function in before:
            setattr(where, name, function)


def _power(plain: Callable[[float, float], float]) -> Callable[[Any, Any], Any]:
    def function(base: Any, exponent: Any) -> Any:
        if isinstance(base, torch.SymFloat) or isinstance(exponent, torch.SymFloat):
            return base**exponent
        return plain(base, exponent)

    return function

"""One operation of a body as LLVM instructions, on scalars or on lanes.

Without fast-math flags LLVM neither contracts nor reassociates. No instruction is used that some x86-64 processor
lacks and that LLVM would replace by a call of a library, but fused multiply-add of f32: see `codegen.llvm.fused`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aicf_mlir.codegen.functions import LIBM_ENTRY, conversion, formula, rare
from aicf_mlir.codegen.llvm.text import LLVM_TYPES, Function, Value, constant, lanes_of, suffix
from aicf_mlir.ir.body import BITS, POWER_OF_INTEGER, Body, Line, is_float

INSTRUCTIONS = {
    **{f"arith.{name}": f"f{name.removesuffix('f')}" for name in ("addf", "subf", "mulf", "divf")},
    **{f"arith.{name}": name.removesuffix("i") for name in ("addi", "subi", "muli", "andi", "ori", "xori")},
}
"""The instructions with two operands."""
INTRINSICS = {
    **{f"arith.{name}f": name for name in ("maximum", "minimum")},
    **{f"arith.{kind}{sign}i": f"{sign}{kind}" for kind in ("max", "min") for sign in "su"},
    "math.sqrt": "sqrt",
    "math.absf": "fabs",
    "math.copysign": "copysign",
}
"""The intrinsics that are instructions on every processor."""

Emit = Callable[[Function, Line, Sequence[Value]], Value]


def inline(function: Function, body: Body, args: Sequence[Value], lanes: int) -> list[Value]:
    """The results of a body of these operations on values of `lanes` lanes."""
    values = list(args)
    for line in body.lines:
        values.append(operation(function, line, [values[arg] for arg in line.args], lanes))
    return [values[value] for value in body.results]


def operation(function: Function, line: Line, args: Sequence[Value], lanes: int) -> Value:
    """The result of a line on values of `lanes` lanes; all operations but reductions, `scalar.index` and `scalar.load`."""
    op, type_ = line.op, line.type
    if op == "arith.constant":
        assert line.attr is not None
        assert not isinstance(line.attr, str)
        return constant(line.attr, type_, lanes)
    if op in INSTRUCTIONS:
        return function.value(f"{INSTRUCTIONS[op]} {args[0]}, {args[1].text}", type_, lanes)
    if op in INTRINSICS:
        return _intrinsic(function, INTRINSICS[op], args)
    if op in SPECIAL:
        return SPECIAL[op](function, line, args)
    if op == "math.fma" and type_ == "f32":
        return _intrinsic(function, "fma", args)
    body = formula(op, type_, len(args))
    if body is not None:
        number = line.attr if isinstance(line.attr, int) else 0  # of a random word
        return inline(function, body, args, lanes)[number]
    return _library_call(function, LIBM_ENTRY[op], args)


def _intrinsic(function: Function, name: str, args: Sequence[Value]) -> Value:
    first = args[0]
    full = f"llvm.{name}.{suffix(first.type, first.lanes)}"
    text = function.call(full, first.llvm, *((arg.llvm, arg.text) for arg in args))
    return Value(text, first.type, first.lanes)


def _library_call(function: Function, entry: int, args: Sequence[Value]) -> Value:
    """A function of f64 from the table, lane by lane."""
    slot = function.pointer("%libm", "ptr", str(entry))
    address = function.new(f"load ptr, ptr {slot}")
    lanes = args[0].lanes
    result = "poison"
    for lane in range(lanes):
        passed = [function.lanes(arg, lane, 1) for arg in args]
        one = function.new(f"call double {address}({', '.join(map(str, passed))})")
        if lanes == 1:
            return Value(one, "f64")
        result = function.new(f"insertelement <{lanes} x double> {result}, double {one}, i64 {lane}")
    return Value(result, "f64", lanes)


def compare(function: Function, text: str, left: Value, right: Value) -> Value:
    """An i1 of a comparison: `fcmp olt`."""
    return function.value(f"{text} {left}, {right.text}", "i1", left.lanes)


def select(function: Function, condition: Value, yes: Value, no: Value) -> Value:
    """Lane by lane one of two."""
    return function.value(f"select {condition}, {yes}, {no}", yes.type, yes.lanes)


def binary(function: Function, name: str, left: Value, right: Value) -> Value:
    """An LLVM instruction of two operands."""
    return function.value(f"{name} {left}, {right.text}", left.type, left.lanes)


def _negate(function: Function, line: Line, args: Sequence[Value]) -> Value:
    return function.value(f"fneg {args[0]}", line.type, args[0].lanes)


def _integer_power(function: Function, line: Line, args: Sequence[Value]) -> Value:
    """The power, computed by the function of two floats."""
    x, exponent = args
    wide = _from_integer(function, Line("arith.sitofp", line.args[1:], line.type), [exponent])
    return operation(function, Line("math.powf", line.args, line.type), [x, wide], x.lanes)


def _number(function: Function, line: Line, args: Sequence[Value]) -> Value:
    """The larger or the smaller; if one is a NaN, the other."""
    x, y = args
    left = select(function, compare(function, "fcmp uno", x, x), y, x)
    right = select(function, compare(function, "fcmp uno", y, y), x, y)
    return _intrinsic(function, "maximum" if line.op == "arith.maxnumf" else "minimum", [left, right])


def _absolute(function: Function, line: Line, args: Sequence[Value]) -> Value:
    value = args[0]
    name = f"llvm.abs.{suffix(value.type, value.lanes)}"
    text = function.call(name, value.llvm, (value.llvm, value.text), ("i1", "false"))
    return Value(text, line.type, value.lanes)


def _divide(function: Function, line: Line, args: Sequence[Value]) -> Value:
    """A quotient or a remainder that never traps: by 0 both are 0; the smallest number by -1 wraps around."""
    x, y = args
    kind = line.op.removeprefix("arith.").removesuffix("si")
    if line.type == "i1":
        return binary(function, "and", x, y) if kind != "rem" else constant(0, "i1", x.lanes)
    zero, one = constant(0, line.type, x.lanes), constant(1, line.type, x.lanes)
    smallest = constant(-(2 ** (BITS[line.type] - 1)), line.type, x.lanes)
    none = compare(function, "icmp eq", y, zero)
    minus_one = compare(function, "icmp eq", y, constant(-1, line.type, x.lanes))
    wraps = binary(function, "and", compare(function, "icmp eq", x, smallest), minus_one)
    divisor = select(function, binary(function, "or", none, wraps), one, y)
    rest = binary(function, "srem", x, divisor)
    if kind == "rem":
        return rest
    quotient = binary(function, "sdiv", x, divisor)
    if kind == "floordiv":
        signs = compare(function, "icmp slt", binary(function, "xor", rest, divisor), zero)
        down = binary(function, "and", signs, compare(function, "icmp ne", rest, zero))
        quotient = select(function, down, binary(function, "sub", quotient, one), quotient)
    return select(function, none, zero, quotient)


def _shift(function: Function, line: Line, args: Sequence[Value]) -> Value:
    """The shift; if the amount is at least the bits of the type, the result is the one after every bit has moved out."""
    x, places = args
    last = constant(BITS[line.type] - 1, line.type, x.lanes)
    name = {"arith.shli": "shl", "arith.shrui": "lshr", "arith.shrsi": "ashr"}[line.op]
    far = compare(function, "icmp ugt", places, last)
    moved = binary(function, name, x, select(function, far, last, places))
    if name == "ashr":
        return moved
    return select(function, far, constant(0, line.type, x.lanes), moved)


def _compare_floats(function: Function, line: Line, args: Sequence[Value]) -> Value:
    left, right = (widened(function, arg) for arg in args)
    return compare(function, f"fcmp {line.attr}", left, right)


def _compare_integers(function: Function, line: Line, args: Sequence[Value]) -> Value:
    return compare(function, f"icmp {line.attr}", args[0], args[1])


def _select(function: Function, line: Line, args: Sequence[Value]) -> Value:
    del line
    return select(function, *args)


def cast(function: Function, name: str, value: Value, type_: str) -> Value:
    """An LLVM instruction that converts."""
    target = lanes_of(LLVM_TYPES[type_], value.lanes)
    return function.value(f"{name} {value} to {target}", type_, value.lanes)


def widened(function: Function, value: Value) -> Value:
    """A float of 16 bits as an f32; any other value as it is."""
    if value.type not in ("f16", "bf16"):
        return value
    bits = cast(function, "zext", value, "i32")
    return inline(function, conversion(value.type, "f32"), [bits], value.lanes)[0]


def narrowed(function: Function, value: Value, type_: str) -> Value:
    """An f32 rounded to `type_` if that is a float of 16 bits."""
    if type_ not in ("f16", "bf16"):
        return value
    bits = inline(function, conversion("f32", type_), [value], value.lanes)[0]
    return cast(function, "trunc", bits, type_)


def _extend(function: Function, line: Line, args: Sequence[Value]) -> Value:
    value = widened(function, args[0])
    return value if value.type == line.type else cast(function, "fpext", value, line.type)


def _truncate(function: Function, line: Line, args: Sequence[Value]) -> Value:
    value = args[0]
    if line.type == "f32":
        return cast(function, "fptrunc", value, "f32")
    if value.type == "f64":
        value = inline(function, conversion("f64", "odd"), [value], value.lanes)[0]
    return narrowed(function, value, line.type)


def _from_integer(function: Function, line: Line, args: Sequence[Value]) -> Value:
    name = line.op.removeprefix("arith.")
    value = args[0]
    if line.type not in ("f16", "bf16"):
        return cast(function, name, value, line.type)
    # An i64 that f64 rounds is far beyond f16; for bf16 the error is 2^-53 of a half unit.
    wide = cast(function, name, value, "f64")
    return _truncate(function, Line("arith.truncf", (), line.type), [wide])


def _to_integer(function: Function, line: Line, args: Sequence[Value]) -> Value:
    """The integer towards zero; beyond the range the nearest number, 0 for a NaN."""
    value = widened(function, args[0])
    result = lanes_of(line.type, value.lanes)
    name = f"llvm.fptosi.sat.{suffix(line.type, value.lanes)}.{suffix(value.type, value.lanes)}"
    return Value(function.call(name, result, (value.llvm, value.text)), line.type, value.lanes)


def _resize(function: Function, line: Line, args: Sequence[Value]) -> Value:
    name = {"arith.extsi": "sext", "arith.extui": "zext", "arith.trunci": "trunc"}[line.op]
    return cast(function, name, args[0], line.type)


def _bitcast(function: Function, line: Line, args: Sequence[Value]) -> Value:
    value = args[0]
    if is_float(value.type) == is_float(line.type):
        return Value(value.text, line.type, value.lanes)
    return cast(function, "bitcast", value, line.type)


def _rarely(function: Function, line: Line, args: Sequence[Value]) -> Value:
    condition, usual, x = args
    lanes = x.lanes
    some = condition.text
    if lanes > 1:
        name = f"llvm.vector.reduce.or.{suffix('i1', lanes)}"
        some = function.call(name, "i1", (condition.llvm, condition.text))

    def otherwise() -> Value:
        other = inline(function, rare(str(line.attr), x.type), [x], lanes)[0]
        return select(function, condition, other, usual)

    return function.rarely(some, usual, otherwise)


SPECIAL: dict[str, Emit] = {
    "arith.negf": _negate,
    "arith.maxnumf": _number,
    "arith.minnumf": _number,
    "math.absi": _absolute,
    POWER_OF_INTEGER: _integer_power,
    **dict.fromkeys(("arith.divsi", "arith.remsi", "arith.floordivsi"), _divide),
    **dict.fromkeys(("arith.shli", "arith.shrsi", "arith.shrui"), _shift),
    "arith.cmpf": _compare_floats,
    "arith.cmpi": _compare_integers,
    "arith.select": _select,
    "arith.extf": _extend,
    "arith.truncf": _truncate,
    **dict.fromkeys(("arith.sitofp", "arith.uitofp"), _from_integer),
    "arith.fptosi": _to_integer,
    **dict.fromkeys(("arith.extsi", "arith.extui", "arith.trunci"), _resize),
    "arith.bitcast": _bitcast,
    "codegen.rarely": _rarely,
}
"""The emitter of each operation that is a conversion or takes more than one instruction."""

"""LLVM IR as text: values of any number of lanes, one function under construction, loops.

Lanes are part of the text and not of the machine: LLVM spreads a vector of 64 over the available registers. Since nothing is
contracted or reassociated the results are the same everywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

LLVM_TYPES = {
    "f32": "float",
    "f64": "double",
    "i64": "i64",
    "i32": "i32",
    "i1": "i1",
    "f16": "i16",
    "bf16": "i16",
}
"""The LLVM type of each scalar type. Floats of 16 bits are their bits: the instructions on them become calls on older processors.
"""


@dataclass(frozen=True)
class Value:
    """An SSA value or a constant: its text, the scalar type of each lane, and how many lanes; 1 is a scalar."""

    text: str
    type: str
    lanes: int = 1

    @property
    def llvm(self) -> str:
        """The LLVM type of the value."""
        return lanes_of(LLVM_TYPES[self.type], self.lanes)

    def __str__(self) -> str:
        return f"{self.llvm} {self.text}"


def lanes_of(element: str, lanes: int) -> str:
    """An LLVM type of `lanes` lanes."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def suffix(type_: str, lanes: int) -> str:
    """The suffix for a type in names of intrinsics: `v16f32`."""
    bits = "i16" if type_ in ("f16", "bf16") else type_
    return bits if lanes == 1 else f"v{lanes}{bits}"


def literal(number: float | int, type_: str) -> str:
    """A number as LLVM writes it: floats as the bits of a double that is one of their type."""
    if type_ not in ("f32", "f64"):
        return str(int(number))
    exact = float(number)
    if type_ == "f32":
        try:
            exact = struct.unpack("f", struct.pack("f", exact))[0]
        except OverflowError:
            exact = float("inf") if exact > 0 else float("-inf")
    return f"0x{struct.pack('>d', exact).hex().upper()}"


def constant(number: float | int, type_: str, lanes: int = 1) -> Value:
    """The same number in every lane."""
    if type_ == "i1":
        number = int(number) & 1
    one = literal(number, type_)
    return Value(one if lanes == 1 else f"splat ({LLVM_TYPES[type_]} {one})", type_, lanes)


class Function:
    """A function in the making. Text goes to the end of its last block."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.top: list[str] = []
        """The lines before everything else: memory on the stack."""
        self.declared: set[str] = set()
        self.parameters: list[str] = []
        """The function's own names for the arguments of its module, if any."""
        self.block = "entry"
        self._names = count()

    def emit(self, text: str) -> None:
        """Emit an instruction without a result."""
        self.lines.append(f"  {text}")

    def new(self, text: str) -> str:
        """The name of an instruction's result."""
        name = f"%v{next(self._names)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def value(self, text: str, type_: str, lanes: int = 1) -> Value:
        """The result of an instruction."""
        return Value(self.new(text), type_, lanes)

    def call(self, name: str, result: str, *args: tuple[str, str]) -> str:
        """A call of an intrinsic by full name; arguments are (LLVM type, text). The name of its result, or ""."""
        types = ", ".join(type_ for type_, _ in args)
        self.declared.add(f"declare {result} @{name}({types})")
        text = f"call {result} @{name}({', '.join(f'{type_} {value}' for type_, value in args)})"
        if result == "void":
            self.emit(text)
            return ""
        return self.new(text)

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1:
            return value
        if not value.text.startswith("%"):
            return Value(f"splat ({value})", value.type, lanes)
        vector = lanes_of(LLVM_TYPES[value.type], lanes)
        one = self.new(f"insertelement {vector} poison, {value}, i64 0")
        name = self.new(f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer")
        return Value(name, value.type, lanes)

    def lanes(self, value: Value, first: int, lanes: int) -> Value:
        """The `lanes` lanes from `first` on."""
        if lanes == value.lanes:
            return value
        if lanes == 1:  # LLVM 22 fails on some vectors of one lane
            return self.value(f"extractelement {value}, i64 {first}", value.type)
        picked = ", ".join(f"i32 {lane}" for lane in range(first, first + lanes))
        name = self.new(f"shufflevector {value}, {value.llvm} poison, <{lanes} x i32> <{picked}>")
        return Value(name, value.type, lanes)

    def add(self, left: str, right: str | int) -> str:
        """The sum of two i64 that are not negative."""
        if left == "0":
            return str(right)
        if str(right) == "0":
            return left
        if left.isdecimal() and str(right).isdecimal():
            return str(int(left) + int(right))
        return self.new(f"add nuw nsw i64 {left}, {right}")

    def multiply(self, left: str, right: int) -> str:
        """The product of an i64 and a number, neither negative."""
        if left == "0" or right == 0:
            return "0"
        if left.isdecimal():
            return str(int(left) * right)
        return left if right == 1 else self.new(f"mul nuw nsw i64 {left}, {right}")

    def smaller(self, left: str, right: int | str) -> str:
        """The smaller of two i64."""
        if left.isdecimal() and str(right).isdecimal():
            return str(min(int(left), int(right)))
        return self.call("llvm.smin.i64", "i64", ("i64", left), ("i64", str(right)))

    def unravel(self, index: str, sizes: Sequence[int]) -> list[str]:
        """The position in a box of `sizes` of point number `index`, counted row-major."""
        found: list[str] = []
        for number, size in enumerate(reversed(sizes)):
            last = number == len(sizes) - 1
            found.append(index if last else self.new(f"urem i64 {index}, {size}"))
            if not last:
                index = self.new(f"udiv i64 {index}, {size}")
        return found[::-1]

    def pointer(self, base: str, element: str, index: str) -> str:
        """The address of element number `index`."""
        return base if index == "0" else self.new(f"getelementptr {element}, ptr {base}, i64 {index}")

    def stack(self, element: str, size: int) -> str:
        """Memory for `size` elements that lives as long as the call."""
        name = f"%s{next(self._names)}"
        self.top.append(f"  {name} = alloca [{size} x {element}], align 64")
        return name

    def loop(
        self,
        begin: str,
        end: str,
        step: int,
        carried: Sequence[Value],
        body: Callable[[str, list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """`for (i = begin; i < end; i += step) carried = body(i, carried)`; the result is the final carried values."""
        if begin.isdecimal() and end.isdecimal() and int(begin) >= int(end):
            return list(carried)
        k, before = next(self._names), self.block
        if begin.isdecimal() and end.isdecimal() and int(begin) + step >= int(end):
            return list(body(begin, list(carried)))
        self.lines += [f"  br label %head{k}", f"head{k}:"]
        at, self.block = len(self.lines), f"body{k}"
        names = [Value(f"%p{k}_{number}", value.type, value.lanes) for number, value in enumerate(carried)]
        self.lines += [
            f"  %c{k} = icmp slt i64 %i{k}, {end}",
            f"  br i1 %c{k}, label %body{k}, label %done{k}",
            f"body{k}:",
        ]
        after = body(f"%i{k}", names)
        self.lines += [
            f"  %n{k} = add nuw nsw i64 %i{k}, {step}",
            f"  br label %head{k}",
            f"done{k}:",
        ]
        phis = [f"  %i{k} = phi i64 [ {begin}, %{before} ], [ %n{k}, %{self.block} ]"]
        for name, first, then in zip(names, carried, after, strict=True):
            phis.append(
                f"  {name.text} = phi {name.llvm} [ {first.text}, %{before} ], [ {then.text}, %{self.block} ]"
            )
        self.lines[at:at] = phis
        self.block = f"done{k}"
        return names

    def rarely(self, condition: str, value: Value, otherwise: Callable[[], Value]) -> Value:
        """`value`, or, if the scalar i1 holds, the value that `otherwise` computes in a block of its own."""
        k, before = next(self._names), self.block
        self.lines += [f"  br i1 {condition}, label %rare{k}, label %join{k}", f"rare{k}:"]
        self.block = f"rare{k}"
        other = otherwise()
        self.lines += [f"  br label %join{k}", f"join{k}:"]
        phi = f"phi {value.llvm} [ {value.text}, %{before} ], [ {other.text}, %{self.block} ]"
        self.block = f"join{k}"
        return self.value(phi, value.type, value.lanes)


def module(
    name: str,
    parts: Sequence[tuple[str, Function]],
    arguments: Sequence[str],
    numbers: Sequence[str] = ("begin", "end"),
    linkage: str = "",
) -> str:
    """A module with the functions `parts` of one kernel.

    `arguments` are the parameters of the inner functions, each a pointer: `ptr noalias %a0`. The outer ones read them from an
    array of addresses. A function may have names of its own for them. After them all functions take the i64 `numbers`. With the
    linkage "internal" only other functions of the module see them.
    """
    counts = ", ".join(f"i64 %{number}" for number in numbers)
    texts: list[str] = [f"; {name}"]
    declared: set[str] = set()
    for function, part in parts:
        declared |= part.declared
        texts += [
            f"define internal void @{function}_body({', '.join(part.parameters or arguments)}, {counts}) #1 {{",
            "entry:",
            *part.top,
            *part.lines,
            "  ret void",
            "}",
            f"define {linkage}{' ' if linkage else ''}void @{function}(ptr %operands, {counts}) #0 {{",
        ]
        for number in range(len(arguments)):
            texts.append(f"  %s{number} = getelementptr ptr, ptr %operands, i64 {number}")
            texts.append(f"  %q{number} = load ptr, ptr %s{number}")
        passed = ", ".join(f"ptr %q{number}" for number in range(len(arguments)))
        texts += [f"  call void @{function}_body({passed}, {counts})", "  ret void", "}"]
    texts += sorted(declared)
    # Without builtins LLVM does not turn loops into calls of memset or memcpy.
    texts += [
        'attributes #0 = { nounwind "no-builtins" }',
        'attributes #1 = { alwaysinline nounwind "no-builtins" }',
    ]
    return "\n".join([*texts, ""])

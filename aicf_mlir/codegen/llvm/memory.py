"""Elements in memory: contiguous ones as a vector, one for all lanes, or one by one; f16, bf16 and i1 converted."""

from __future__ import annotations

from aicf_mlir.codegen.llvm.operations import narrowed, widened
from aicf_mlir.codegen.llvm.text import LLVM_TYPES, Function, Value, lanes_of
from aicf_mlir.ir.element_types import byte_size

STORED = LLVM_TYPES | {"i1": "i8"}
"""The LLVM type in memory of each element type; an i1 is a byte, 0 or 1."""


def iota(lanes: int) -> str:
    """0, 1, 2, …"""
    return f"<{', '.join(f'i64 {lane}' for lane in range(lanes))}>"


def _suffix(element: str, lanes: int) -> str:
    kind = {"float": "f32", "double": "f64"}.get(STORED[element], STORED[element])
    return f"v{lanes}{kind}"


def decoded(function: Function, text: str, element: str, lanes: int) -> Value:
    """The read value, in the type that bodies compute in."""
    if element == "i1":
        zero = "0" if lanes == 1 else "zeroinitializer"
        return function.value(f"icmp ne {lanes_of('i8', lanes)} {text}, {zero}", "i1", lanes)
    return widened(function, Value(text, element, lanes))


def encoded(function: Function, value: Value, element: str) -> str:
    """The value to write."""
    if element == "i1":
        return function.new(f"zext {value} to {lanes_of('i8', value.lanes)}")
    return narrowed(function, value, element).text


def _pieces(valid: int) -> list[tuple[int, int]]:
    """(first, count) of powers of two that make up `valid` elements, the largest first.

    Masked stores with a constant mask are not used: LLVM 22 writes four bytes where one lane of a narrowed
    <4 x i16> is stored.
    """
    found: list[tuple[int, int]] = []
    first = 0
    for bit in reversed(range(valid.bit_length())):
        if valid >> bit & 1:
            found.append((first, 1 << bit))
            first += 1 << bit
    return found


def load(function: Function, pointer: str, element: str, lanes: int = 1, valid: int | None = None) -> Value:
    """`lanes` elements that follow each other; those from `valid` on are not read, and are 0."""
    kind, align = STORED[element], byte_size(element, ())
    if valid is None or valid == lanes:
        text = function.new(f"load {lanes_of(kind, lanes)}, ptr {pointer}, align {align}")
        return decoded(function, text, element, lanes)
    whole, text = lanes_of(kind, lanes), "zeroinitializer"
    for first, count in _pieces(valid):
        part = f"<{count} x {kind}>"
        address = function.pointer(pointer, kind, str(first))
        if count == 1:  # LLVM 22 fails on some vectors of one lane
            piece = function.new(f"load {kind}, ptr {address}, align {align}")
            text = function.new(f"insertelement {whole} {text}, {kind} {piece}, i64 {first}")
            continue
        piece = function.new(f"load {part}, ptr {address}, align {align}")
        # Lanes that nobody picks are poison: with the last element in them, LLVM 22 reads two as one that is repeated.
        spread = ", ".join(f"i32 {lane if lane < count else 'poison'}" for lane in range(lanes))
        piece = function.new(f"shufflevector {part} {piece}, {part} poison, <{lanes} x i32> <{spread}>")
        picked = ", ".join(
            f"i32 {lanes + lane - first if first <= lane < first + count else lane}" for lane in range(lanes)
        )
        text = function.new(f"shufflevector {whole} {text}, {whole} {piece}, <{lanes} x i32> <{picked}>")
    return decoded(function, text, element, lanes)


def store(
    function: Function, value: Value, pointer: str, element: str, lanes: int = 1, valid: int | None = None
) -> None:
    """Store the lanes one after the other; lanes from `valid` on are not written."""
    kind, align = STORED[element], byte_size(element, ())
    text = encoded(function, value, element)
    if valid is None or valid == lanes:
        function.emit(f"store {lanes_of(kind, lanes)} {text}, ptr {pointer}, align {align}")
        return
    for first, count in _pieces(valid):
        whole, address = lanes_of(kind, lanes), function.pointer(pointer, kind, str(first))
        if count == 1:
            piece = function.new(f"extractelement {whole} {text}, i64 {first}")
            function.emit(f"store {kind} {piece}, ptr {address}, align {align}")
            continue
        picked = ", ".join(f"i32 {lane}" for lane in range(first, first + count))
        piece = function.new(f"shufflevector {whole} {text}, {whole} poison, <{count} x i32> <{picked}>")
        function.emit(f"store <{count} x {kind}> {piece}, ptr {address}, align {align}")


def addresses(function: Function, pointer: str, element: str, indices: Value) -> str:
    """The address of an element for each lane."""
    return function.new(f"getelementptr {STORED[element]}, ptr {pointer}, {indices}")


def steps(stride: int, lanes: int, valid: int | None = None) -> Value:
    """The distance of each lane from the first; lanes from `valid` on stay at the last valid one."""
    last = lanes - 1 if valid is None else valid - 1
    text = ", ".join(f"i64 {min(lane, last) * stride}" for lane in range(lanes))
    return Value(f"<{text}>", "i64", lanes)


def gather(function: Function, pointer: str, element: str, indices: Value) -> Value:
    """The element at each lane's index; all of them must exist."""
    lanes = indices.lanes
    if lanes == 1:
        return load(function, addresses(function, pointer, element, indices), element)
    type_, align = lanes_of(STORED[element], lanes), byte_size(element, ())
    text = function.call(
        f"llvm.masked.gather.{_suffix(element, lanes)}.v{lanes}p0",
        type_,
        (f"<{lanes} x ptr>", f"align {align} {addresses(function, pointer, element, indices)}"),
        (f"<{lanes} x i1>", "splat (i1 true)"),
        (type_, "poison"),
    )
    return decoded(function, text, element, lanes)


def load_run(function: Function, row: str, element: str, indices: Value, size: int) -> Value:
    """Elements of a row of `size`, at indices that follow each other: outside of the row its first or its last one."""
    lanes, kind, align = indices.lanes, STORED[element], byte_size(element, ())
    type_, flags, zero = lanes_of(kind, lanes), lanes_of("i1", lanes), Value("0", "i64")

    def element_at(index: str) -> str:
        """One element in each lane."""
        address = function.pointer(row, kind, index)
        one = function.new(f"load {kind}, ptr {address}, align {align}")
        one = function.new(f"insertelement {type_} poison, {kind} {one}, i64 0")
        return function.new(f"shufflevector {type_} {one}, {type_} poison, <{lanes} x i32> zeroinitializer")

    bounds = (function.splat(Value(str(limit), "i64"), lanes).text for limit in (zero.text, size))
    low, high = (function.new(f"icmp slt {indices}, {bound}") for bound in bounds)
    inside = function.new(f"xor {flags} {low}, {high}")
    ends = element_at("0"), element_at(str(size - 1))
    beside = function.new(f"select {flags} {low}, {type_} {ends[0]}, {type_} {ends[1]}")
    first = function.new(f"extractelement {indices}, i64 0")
    address = function.new(f"getelementptr {kind}, ptr {row}, i64 {first}")
    text = function.call(
        f"llvm.masked.load.{_suffix(element, lanes)}.p0",
        type_,
        ("ptr", f"align {align} {address}"),
        (flags, inside),
        (type_, beside),
    )
    return decoded(function, text, element, lanes)


def scatter(
    function: Function, value: Value, pointer: str, element: str, stride: int, valid: int | None
) -> None:
    """Store the lanes `stride` elements apart; those from `valid` on are not written."""
    lanes, kind, align = value.lanes, STORED[element], byte_size(element, ())
    type_ = lanes_of(kind, lanes)
    text = encoded(function, value, element)
    if valid is not None:
        for lane in range(valid):
            one = function.new(f"extractelement {type_} {text}, i64 {lane}")
            address = function.pointer(pointer, kind, str(lane * stride))
            function.emit(f"store {kind} {one}, ptr {address}, align {align}")
        return
    where = addresses(function, pointer, element, steps(stride, lanes))
    function.call(
        f"llvm.masked.scatter.{_suffix(element, lanes)}.v{lanes}p0",
        "void",
        (type_, text),
        (f"<{lanes} x ptr>", f"align {align} {where}"),
        (f"<{lanes} x i1>", "splat (i1 true)"),
    )

"""Offsets of elements, and the widths of reads and writes.

Tensors are counted as in `Axis.strides`: the operands, then the results. The pointer to a tensor's first element is
`a0`, `a1`, … for operands and `r0`, `r1`, … for results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aicf_mlir.codegen.cuda.dependency import WAIT
from aicf_mlir.codegen.cuda.scalars import STORED
from aicf_mlir.codegen.cuda.text import Text
from aicf_mlir.ir.body import BITS, is_table
from aicf_mlir.kernels.kernel import Axis, Kernel, Tensor

ACCESS = 16
"""Bytes of the widest access of one thread."""


def size_of(element: str) -> int:
    """Bytes in memory."""
    return max(1, BITS[element] // 8)


def tensors(kernel: Kernel) -> tuple[Tensor, ...]:
    """The operands, then the results."""
    return (*kernel.operands, *kernel.results)


def pointer(kernel: Kernel, tensor: int) -> str:
    """The name of a tensor's address."""
    count = len(kernel.operands)
    return f"a{tensor}" if tensor < count else f"r{tensor - count}"


def signature(kernel: Kernel, function: str, threads: int, blocks_per_processor: int = 0) -> str:
    """The head of a kernel.

    No address is marked `__restrict__`: the compiler may read memory that is const and restrict before `dependency_wait()`, when
    the previous launch has not written it yet.
    """
    return head(parameters(kernel), function, threads, blocks_per_processor)


def parameters(kernel: Kernel) -> list[str]:
    """The addresses of the operands and results of the launch; addresses of its other part are not used here."""
    found: list[str] = []
    for number, tensor in enumerate(tensors(kernel)):
        const = "const " if number < len(kernel.operands) else ""
        found.append(f"{const}{STORED[tensor.element]}* {pointer(kernel, number)}")
    return [f"void* other{n}" if own is None else found[own] for n, own in enumerate(kernel.launch_tensors)]


def head(
    addresses: Sequence[str], function: str, threads: int, blocks_per_processor: int = 0, gates: bool = False
) -> str:
    """The head of a kernel that takes these parameters, its workspace and a status; and `gates`, by which its blocks meet."""
    parameters = [*addresses, "void* workspace", "const long long* predicate"]
    parameters += ["unsigned* gates"] if gates else []
    bounds = f"{threads}, {blocks_per_processor}" if blocks_per_processor else f"{threads}"
    return (
        f'extern "C" __global__ void __launch_bounds__({bounds}) {function}(\n    '
        + ",\n    ".join(parameters)
        + ")"
    )


def begin(text: Text) -> None:
    """Write the first statements: a kernel waits for the launches before it, and does nothing if the status tells it so."""
    text.add(WAIT)
    text.add("if (predicate != nullptr && *predicate != 0) return;")


def reach(axes: Iterable[Axis]) -> int:
    """The largest distance, in elements, between any tensor's first element and another one."""
    found = [[abs(stride) * max(axis.size - 1, 0) for stride in axis.strides] for axis in axes]
    return max((sum(column) for column in zip(*found, strict=True)), default=0)


def integer(largest: int) -> str:
    """An integer type for offsets up to `largest`."""
    return "int" if largest < 1 << 30 else "long long"


def width(kernel: Kernel, axes: Sequence[Axis], inner: int, hot: Iterable[int]) -> int:
    """The number of neighbours along axis `inner` that a thread may take at once; 1 if some tensor does not allow more.

    The tensors in `hot` make up the traffic. The one with the largest elements is read and written 16 bytes at a time; wider
    elements elsewhere take several accesses.
    """
    contiguous = [
        n for n in range(len(tensors(kernel))) if axes[inner].strides[n] == 1 and not _is_table(kernel, n)
    ]
    if not contiguous:
        return 1
    most = ACCESS // max(
        size_of(tensors(kernel)[n].element) for n in (set(contiguous) & set(hot) or contiguous)
    )
    while most > 1 and not all(_fits(tensors(kernel)[n], n, axes, inner, most) for n in contiguous):
        most //= 2
    return max(most, 1)


def varying(kernel: Kernel, axes: Iterable[Axis]) -> list[int]:
    """The tensors that differ along all these axes; those that repeat are few bytes, and come from a cache."""
    long = [axis for axis in axes if axis.size > 1]
    return [n for n in range(len(tensors(kernel))) if all(axis.strides[n] for axis in long)]


def _is_table(kernel: Kernel, number: int) -> bool:
    return number < len(kernel.operands) and is_table(kernel.body.args[number])


def _fits(tensor: Tensor, number: int, axes: Sequence[Axis], inner: int, count: int) -> bool:
    """True if every access of `count` neighbours is aligned; `inner` may leave a rest."""
    if tensor.alignment % min(count * size_of(tensor.element), ACCESS):
        return False
    others = [axis for n, axis in enumerate(axes) if n != inner and axis.size > 1]
    if any(axis.strides[number] % count for axis in others):
        return False
    return axes[inner].size % count == 0 or not others


@dataclass(frozen=True)
class Coordinates:
    """A point, by the name of its coordinate along each axis."""

    axes: tuple[Axis, ...]
    names: tuple[str, ...]

    def offset(self, tensor: int) -> str:
        """Elements from the tensor's first one."""
        terms = [
            name if axis.strides[tensor] == 1 else f"{name} * {axis.strides[tensor]}"
            for axis, name in zip(self.axes, self.names, strict=True)
            if axis.strides[tensor] and axis.size > 1
        ]
        return " + ".join(terms) or "0"


def find(
    text: Text, axes: Sequence[Axis], counter: str, prefix: str, kind: str, neighbours: int = 1
) -> Coordinates:
    """Declare the coordinates of the point with the number `counter`, an unsigned, counted row-major.

    Points are counted `neighbours` along the last axis at a time; the coordinate is that of the first of them.
    """
    names: list[str] = []
    rest = counter
    for number in range(len(axes) - 1, -1, -1):
        last = number == len(axes) - 1
        size = axes[number].size // neighbours if last else axes[number].size
        name = f"{prefix}{number}"
        part = rest if number == 0 else f"({rest}) % {max(size, 1)}u"
        scale = f" * {neighbours}" if last and neighbours > 1 else ""
        text.add(f"const {kind} {name} = static_cast<{kind}>({part}){scale};")
        names.append(name)
        rest = f"({rest}) / {max(size, 1)}u"
    return Coordinates(tuple(axes), tuple(reversed(names)))


def fetch(
    text: Text,
    kernel: Kernel,
    place: Coordinates,
    number: int,
    count: int,
    target: str,
    base: str = "",
    how: str = "",
    along: Axis | None = None,
) -> None:
    """Assign `count` neighbours of an operand, along the last axis of `place` or along another one, to the vector `target`.

    `how`: "once" for operands that are read once, and need not stay in the caches; "ahead" for reads before the wait.
    """
    base = base or pointer(kernel, number)
    stride = _step(place, number, along)
    at = place.offset(number)
    load = f"load_{how}" if how else "load"
    if stride == 1 and count > 1:
        text.add(f"{target} = {load}<{count}>({base} + ({at}));")
        return
    for j in range(count if stride else 1):
        element = f"{at}{f' + {j * stride}' if j else ''}"
        single = f"{load}<1>({base} + ({element})).at[0]" if how == "ahead" else f"{base}[{element}]"
        text.add(f"{target}.at[{j}] = {single};")


def put(
    text: Text,
    kernel: Kernel,
    place: Coordinates,
    number: int,
    count: int,
    base: str = "",
    along: Axis | None = None,
) -> None:
    """Write `count` neighbours, the vector `y<number>`, to result `number`."""
    tensor = len(kernel.operands) + number
    base = base or pointer(kernel, tensor)
    stride = _step(place, tensor, along)
    at = place.offset(tensor)
    if stride == 1 and count > 1:
        text.add(f"store({base} + ({at}), y{number});")
    else:
        for j in range(count):
            text.add(f"{base}[{at}{f' + {j * stride}' if j else ''}] = y{number}.at[{j}];")


def _step(place: Coordinates, tensor: int, along: Axis | None) -> int:
    """Elements from one neighbour to the next."""
    axis = along or (place.axes[-1] if place.axes else None)
    return axis.strides[tensor] if axis else 0


def index_of(dim: int, neighbour: str, *places: Coordinates) -> str:
    """The point's place in a dimension of the domain, `neighbour` points further along the last axis of the last place."""
    terms: list[str] = []
    for place in places:
        for axis, name in zip(place.axes, place.names, strict=True):
            if axis.dims == (dim,):
                terms.append(name if axis.step == 1 else f"{name} * {axis.step}")
                if neighbour and place is places[-1] and axis is place.axes[-1]:
                    terms.append(neighbour)
    assert terms, f"dimension {dim} has no axis of its own"
    return f"static_cast<long long>({' + '.join(terms)})"

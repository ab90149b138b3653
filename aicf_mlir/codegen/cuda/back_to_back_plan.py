"""The division of a chain for CUDA: the rows of each warpgroup, the contents of shared memory and of registers.

A warpgroup takes 64 rows at a time through all links. Blocks persist and take tiles with a fixed stride. Weights and vectors are
brought to shared memory once, tiles of operands one tile ahead. For an outer product, either each warpgroup has all sums over its
own rows, or the warpgroups of a block divide the sums and each has some of them over the rows of all.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.body import COMPUTE
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.kernels.tensor import Tensor

ROWS = 64
"""The rows of a tile."""


@dataclass(frozen=True)
class Fetch:
    """A tile of an operand that is brought to shared memory ahead of its use, of each warp its own rows."""

    operand: int
    """The number of the operand in the launch."""
    link: int
    """-1: a, which the first link multiplies."""
    columns: int
    element: str
    place: int = 0
    """Bytes from where the warp's own memory begins."""

    @property
    def strip(self) -> str:
        """The type that knows its layout."""
        return f"aicf::chain::{'WideStrip' if self.element == 'f32' else 'Strip'}<{self.columns}>"

    @property
    def bytes(self) -> int:
        """The bytes of one warp."""
        return wide_strip_bytes(self.columns) if self.element == "f32" else strip_bytes(self.columns)


@dataclass(frozen=True)
class Flags:
    """Truth values of a later link that follow from one value alone: one bit is kept of each instead of the value."""

    value: int
    """The number of the value in the chain."""
    link: int
    argument: int
    lines: tuple[int, ...]
    """Values of that link's body."""


@dataclass(frozen=True)
class ChainSchedule:
    """The schedule of a chain; it follows from the kernel alone."""

    warpgroups: int
    """The warpgroups of a block."""
    blocks: int
    weights: tuple[tuple[int, int], ...]
    """For each different b, the first link that has it and its start in shared memory."""
    vectors: tuple[tuple[int, int], ...]
    """For each operand that is the same for all rows, its number and its start, in floats."""
    fetches: tuple[Fetch, ...]
    """The fetches in the order of their uses."""
    alone: bool
    """True if each fetch has memory of its own; else fetches of different links share memory, one link after the other."""
    strips: int
    """The start of the first warp's memory."""
    strip: int
    """Bytes of each warp."""
    flags: tuple[Flags, ...]
    kept: tuple[int, ...]
    """Values that stay in registers as they are until the last link that takes them."""
    sums: tuple[tuple[int, int], ...]
    """For each value with a column sum, its number and the start of its columns among all summed columns."""
    shared: int
    """Bytes of a block."""

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return 128 * self.warpgroups

    @property
    def shares(self) -> int:
        """The number of parts into which the sums of an outer product are divided."""
        return self.warpgroups if self.divided else 1

    summed: int = 0
    """Columns of all sums, and elements of all outer products."""
    places: tuple[tuple[int, int], ...] = ()
    """For each value that is brought to shared memory, its number and the place of the warp's strip; -1 is a."""
    divided: bool = False
    """True if the warpgroups of a block divide the sums of outer products, 64 rows of the result each at a time. Then they
    take neighbouring tiles, and the same number.
    """
    ready: tuple[int, ...] = ()
    """For each outer product, the link after whose body it starts."""
    outer_starts: tuple[int, ...] = ()
    """The start of each outer product's elements among all summed elements."""
    by_products: tuple[int, ...] = ()
    """Values whose column sum is a product with ones, started with the first outer product that has them on its left."""
    ones: int = 0
    """The start of the ones in shared memory."""

    def ragged(self, rows: int) -> bool:
        """True if there are tiles that have not all their rows."""
        return rows % (ROWS * self.warpgroups if self.divided else ROWS) != 0

    def fetches_of(self, link: int) -> list[Fetch]:
        """The tiles that the body of a link takes."""
        return [fetch for fetch in self.fetches if fetch.link == link]

    def behind(self, link: int) -> list[Fetch]:
        """The tiles that take the place of those of a link; none after the last link that takes any."""
        later = [fetch for fetch in self.fetches if fetch.link > link]
        return [fetch for fetch in later if fetch.link == later[0].link]

    def flag(self, value: int, link: int, argument: int) -> Flags | None:
        """The bits that a link takes instead of a value."""
        matching = (f for f in self.flags if (f.value, f.link, f.argument) == (value, link, argument))
        return next(matching, None)


def strip_bytes(columns: int) -> int:
    """The bytes of 16 rows of 16-bit elements, as `Strip` lays them out."""
    return -(-columns // 64) * 16 * 128


def wide_strip_bytes(columns: int) -> int:
    """The bytes of 16 rows of floats, as `WideStrip` lays them out."""
    return 16 * (4 * columns + (0 if columns % 32 == 0 else 32))


def sum_registers(element: str, columns: int, by_products: int = 0) -> int:
    """The registers of a column sum: a chunk of eight neighbours, the elements that `Fold` leaves to a lane, or the result of a
    product with ones.

    `by_products`: the shares of that product, 0 if there is none.
    """
    if by_products:
        return 4 * (-(-columns // 64) // by_products)
    blocks = columns // 8
    halvings = 3 if blocks % 8 == 0 else 2 if blocks % 4 == 0 else 1
    return 8 if element in NARROW else columns // 4 >> halvings


def outer_blocks(result: Tensor) -> int:
    """The number of blocks of 64 rows in the result of an outer product."""
    return -(-result.shape[0] // 64)


def outer_registers(result: Tensor, shares: int) -> int:
    """The registers of the sums of an outer product."""
    return outer_blocks(result) // shares * result.shape[1] // 2


def is_scalar(tensor: Tensor) -> bool:
    """True if all its elements are one."""
    return all(size == 1 or stride == 0 for size, stride in zip(tensor.shape, tensor.strides, strict=True))


def is_vector(tensor: Tensor) -> bool:
    """True if all its rows are one, of floats."""
    return tensor.strides[0] == 0 and not is_scalar(tensor) and COMPUTE[tensor.element] == "f32"


def is_tile(tensor: Tensor) -> bool:
    """True if its rows are stored one after the other and can be read 16 bytes at a time."""
    whole = tensor.strides == (tensor.shape[1], 1) and tensor.alignment % 16 == 0
    return whole and COMPUTE[tensor.element] == "f32"

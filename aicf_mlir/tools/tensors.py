"""The tensors that go into and come out of `aicf-run`: their sources and destinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from zipfile import BadZipFile
from zlib import crc32

import ml_dtypes
import numpy as np

from aicf_mlir.errors import BindError
from aicf_mlir.interpreters.numerics import FLOATS, NUMPY_TYPES, Array
from aicf_mlir.ir.layouts import Layout
from aicf_mlir.ir.roles import ROLES
from aicf_mlir.ir.signature import STATUS, Key
from aicf_mlir.machine.atomic_file import write_file
from aicf_mlir.optimizers import EXAMPLES
from aicf_mlir.optimizers.slots import plain_name
from aicf_mlir.optimizers.traced import EXAMPLE
from aicf_mlir.passes.clip_gradients import EXAMPLES as LIMITS

_EXAMPLES = {**EXAMPLES, **LIMITS}
"""Examples of host scalars, by their names without a group."""


@dataclass(frozen=True)
class NamedTensor:
    """One named tensor: its purpose and its type. Integers are class indices below `classes`."""

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    classes: int = 2

    @property
    def key(self) -> Key:
        """The key of the tensor: a parameter and an input may have the same name."""
        return self.role, self.name


def repeated(layout: Layout | None) -> int:
    """The number of repetitions of the one element in each row of a matrix with this layout; 0 if it is no such matrix."""
    is_it = layout is not None and len(layout.shape) == 2 and layout.strides == (1, 0)
    return layout.shape[1] if layout is not None and is_it else 0


def long_name(key: Key) -> str:
    """`ROLE:NAME`: always right, also where two roles have the same name."""
    return f"{key[0]}:{key[1]}"


def shown_names(keys: Iterable[Key]) -> dict[Key, str]:
    """A name of its own for every tensor of a step, to print it and to find it in an .npz file.

    The user's name, `NAME.grad` for a gradient; the long name if another tensor has that name, or if it looks like a long one.
    """
    short = {key: f"{key[1]}.grad" if key[0] == "grad" else key[1] for key in keys}
    count = Counter(short.values())
    return {
        key: name if count[name] == 1 and name.split(":")[0] not in ROLES else long_name(key)
        for key, name in short.items()
    }


def random_value(tensor: NamedTensor, seed: int, shown: str | None = None) -> Array:
    """A value that suits the role, from `seed` and the name alone, as shown: the same at every level."""
    generator = np.random.default_rng([seed, crc32((shown or tensor.name).encode())])
    dtype, shape = NUMPY_TYPES[tensor.dtype], tensor.shape
    if tensor.role == STATUS:
        return np.zeros(shape, dtype)
    if tensor.dtype not in FLOATS:
        high = 2 if tensor.dtype == "i1" else max(1, tensor.classes)
        return generator.integers(0, high, shape).astype(dtype)
    if tensor.role == "host_scalar":
        return np.full(shape, _EXAMPLES.get(plain_name(tensor.name), EXAMPLE)).astype(dtype)
    if tensor.role == "state":
        return np.zeros(shape, dtype)
    values = generator.standard_normal(shape)
    if tensor.role in ("param", "buffer"):
        values /= np.sqrt(shape[-1]) if len(shape) > 1 else 10.0
    return values.astype(dtype)


def load_values(path: str, tensors: Iterable[NamedTensor], shown: Mapping[Key, str]) -> dict[Key, Array]:
    """The arrays of an .npz file, each checked against the tensor of its shown or long name; raises `BindError`."""
    listed = list(tensors)
    known = {name: tensor for tensor in listed for name in (long_name(tensor.key), shown[tensor.key])}
    try:
        with np.load(path, allow_pickle=False) as archive:
            names: list[str] = list(archive.files)
            if unknown := [name for name in names if name not in known]:
                expected = ", ".join(shown[tensor.key] for tensor in listed)
                raise BindError(f"{path}: no argument is named {unknown[0]!r}; arguments: {expected}")
            return {known[name].key: _checked(path, name, known[name], archive[name]) for name in names}
    except (OSError, ValueError, EOFError, BadZipFile, AttributeError) as error:
        raise BindError(f"{path}: cannot be read as .npz: {error}") from None


def _checked(path: str, name: str, tensor: NamedTensor, loaded: object) -> Array:
    value, dtype = np.asarray(loaded), NUMPY_TYPES[tensor.dtype]
    if tensor.dtype == "bf16" and value.dtype == np.float32:
        value = value.astype(ml_dtypes.bfloat16)
    if (value.dtype, value.shape) != (dtype, tensor.shape):
        given = f"{value.dtype}{list(value.shape)}"
        hint = " (give bf16 as float32)" if tensor.dtype == "bf16" else ""
        raise BindError(f"{path}: {name!r} must be {dtype}{list(tensor.shape)}, got {given}{hint}")
    return value


def save_values(path: str, values: Mapping[str, Array]) -> None:
    """Write arrays as .npz; bf16, which the format lacks, as float32."""
    stored = {name: value.astype(np.float32) if _is_bf16(value) else value for name, value in values.items()}
    buffer = BytesIO()
    np.savez(buffer, allow_pickle=False, **stored)
    write_file(path, buffer.getvalue())


def _is_bf16(value: Array) -> bool:
    return value.dtype == NUMPY_TYPES["bf16"]


def summary(values: Mapping[str, Array]) -> str:
    """A table with one row a tensor: name, type, mean, least, largest value, checksum of the bytes."""
    rows = [("name", "dtype", "shape", "mean", "min", "max", "crc32")]
    rows += [(name, *_statistics(value)) for name, value in values.items()]
    return table(rows)


def _statistics(value: Array) -> tuple[str, str, str, str, str, str]:
    wide = value.astype(np.float64)
    reductions: tuple[Callable[[Array], object], ...] = (np.mean, np.min, np.max)
    numbers = [f"{reduce(wide):.6g}" if value.size else "-" for reduce in reductions]
    shape = "x".join(map(str, value.shape)) or "scalar"
    mean, least, largest = numbers
    return (
        str(value.dtype),
        shape,
        mean,
        least,
        largest,
        f"{crc32(np.ascontiguousarray(value).tobytes()):08x}",
    )


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Text rows in aligned columns, two spaces apart."""
    listed = list(rows)
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in listed]
    return "".join(f"{line.rstrip()}\n" for line in lines)

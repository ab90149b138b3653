"""The GPU's updates run thread by thread on the host: tables, types of gradients and ragged ends need no GPU to be seen."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import children
import numpy as np
import pytest
from cuda_on_host import exceeded, placed
from kernel_calls import judge
from kernel_cases import FLOATS, Array, Case, Maker, cases
from kernel_cases.optim import NARROW, narrow

from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir.registry import schemas, segments

ROOT = Path(__file__).parents[3]
STATES = {"sgd_step": ("p", "g", "buf"), "adam_step": ("p", "g", "m", "v", "vmax")}
SCALARS = {
    "sgd_step": ("lr", "weight_decay", "momentum", "dampening", "step"),
    "adam_step": ("lr", "beta1", "beta2", "eps", "weight_decay", "bc1_inv", "bc2_inv"),
}
MOST_STATES, MOST_SCALARS = 5, 7
"""Columns of the tables of addresses."""
FLAGS = ("nesterov", "decoupled", "maximize")
EACH = 3
"""One case in so many runs."""


class HostUpdates:
    """The launches of csrc/kernels/optim/cuda.cu; an access out of bounds or not aligned ends the process."""

    def __init__(self, folder: Path):
        library = folder / "updates.so"
        flags = ["-std=c++17", "-w", "-Og", "-ffp-contract=off", "-shared", "-fPIC", "-U_FORTIFY_SOURCE"]
        flags += ["-fsanitize=alignment,bounds", "-fsanitize-undefined-trap-on-error"]
        here = ROOT / "tests/py/support"
        flags += [f"-I{folder}" for folder in (here / "toolkit_on_host", here, ROOT / "csrc")]
        sources = [ROOT / "tests/cpp/updates_on_host.cpp"]
        sources += [ROOT / f"csrc/op/{name}.cpp" for name in ("schema", "attrs", "tensor_desc")]
        children.run(["g++", *flags, *sources, "-o", library], check=True)
        self.library = ctypes.CDLL(str(library))
        self.launches = 0
        """Of the last run."""

    def run(
        self,
        op: str,
        case: Case,
        in_place: bool = False,
        skip: bool = False,
        backwards: bool = False,
        alignments: Sequence[int] = (16,),
    ) -> list[Array]:
        """The results, poisoned before; of each tensor in turn the addresses are multiples of one of `alignments`."""
        assert case.counts is not None
        given = segments(schemas()[op].inputs, case.counts[0], list(case.inputs))
        states = [name for name in STATES[op] if given[name]]
        groups, indices = case.attrs["groups"], case.attrs.get("indices", [])
        count = len(groups)

        def memory(array: Array, at: int) -> Array:
            alignment = max(alignments[at % len(alignments)], array.dtype.itemsize)
            return placed(np.array(array).reshape(-1).view(np.uint8), alignment)

        old = {name: [memory(x, i) for i, x in enumerate(given[name])] for name in states}
        new = {
            name: old[name]
            if in_place
            else [memory(np.full_like(x, np.nan), i) for i, x in enumerate(given[name])]
            for name in states
            if name != "g"
        }
        kept = [np.array(x).reshape(-1) for name in SCALARS[op] for x in given[name]]
        scalars = dict(zip(((n, i) for n in SCALARS[op] for i in range(len(given[n]))), kept, strict=True))
        status = np.array([int(skip)], np.int64)

        def scalar(name: str, at: int) -> int:
            values = scalars[name, groups[at]]
            index = indices[at] if given[name][groups[at]].ndim else 0
            return values.ctypes.data + index * values.itemsize

        def table(columns: int, addresses: list[list[int]]) -> ctypes.Array[ctypes.c_void_p]:
            rows = [[*row, *[0] * (columns - len(row))] for row in addresses]
            return (ctypes.c_void_p * (columns * count))(*(address for row in rows for address in row))

        types = list(FLOATS)  # as csrc/op/tensor_desc.h numbers them
        names = {dtype: name for name, dtype in NUMPY_TYPES.items()}
        self.launches = self.library.update_on_host(
            ctypes.c_bool(op == "adam_step"),
            types.index(names[given["p"][0].dtype]),
            ctypes.c_bool(STATES[op][-1] in states),
            *(ctypes.c_bool(case.attrs.get(flag, False)) for flag in FLAGS),
            ctypes.c_int64(count),
            (ctypes.c_int64 * count)(*(x.size for x in given["p"])),
            (ctypes.c_int * count)(*(types.index(names[x.dtype]) for x in given["g"])),
            table(MOST_STATES, [[old[name][i].ctypes.data for name in states] for i in range(count)]),
            table(
                MOST_STATES,
                [[new[name][i].ctypes.data if name in new else 0 for name in states] for i in range(count)],
            ),
            table(
                MOST_SCALARS,
                [[scalar(name, i) for name in SCALARS[op] if given[name]] for i in range(count)],
            ),
            ctypes.c_void_p(status.ctypes.data),
            ctypes.c_bool(backwards),
        )
        assert self.launches >= 0
        assert not any(exceeded(x) for parts in (*old.values(), *new.values()) for x in parts)
        written = [x for name in new for x in new[name]]
        return [
            x.view(NUMPY_TYPES[dtype]).reshape(shape)
            for x, (dtype, shape) in zip(written, case.outputs, strict=True)
        ]


@pytest.fixture(scope="module")
def updates(tmp_path_factory: pytest.TempPathFactory) -> HostUpdates:
    return HostUpdates(tmp_path_factory.mktemp("updates"))


@pytest.mark.parametrize("op", STATES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_updates_agree_with_the_interpreter(op: str, dtype: str, updates: HostUpdates) -> None:
    for number, case in enumerate(cases(op, dtype)[::EACH]):
        options = {"in_place": number % 2 == 1, "backwards": number % 4 > 1}
        results = updates.run(op, case, **options, alignments=(16, 2, 8) if number % 3 else (16,))
        assert updates.launches == 1
        assert not (why := judge(op, case, results)), f"{case.label}: {why}"


@pytest.mark.parametrize("op", STATES)
@pytest.mark.parametrize("types", NARROW)
def test_narrow_gradients_have_the_bits_of_widened_ones(op: str, types: str, updates: HostUpdates) -> None:
    found = [case for case in cases(op, "f32") if case.label.startswith(f"{types} ")]
    for case in found[::EACH]:
        wide = [x.astype(np.float32) if x.dtype.itemsize == 2 else x for x in case.inputs]
        apart = Case(case.label, wide, case.outputs, case.attrs, case.counts)
        for alignments in ((16,), (2, 16, 4)):
            results = updates.run(op, case, alignments=alignments)
            expected = updates.run(op, apart)
            for ours, theirs in zip(results, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs, err_msg=case.label)


@pytest.mark.parametrize(("count", "launches"), [(16, 1), (17, 1), (230, 2)])
def test_tables_of_many_tensors(count: int, launches: int, updates: HostUpdates) -> None:
    """More than a small table holds, and more than one launch takes; tensors of several blocks."""
    make = Maker("f32")
    shapes = [(3_000,) if i % 50 == 7 else (i % 9 + 1,) for i in range(count)]
    p, m = ([make.normal(*shape) for shape in shapes] for _ in range(2))
    v = [np.square(make.normal(*shape)) for shape in shapes]
    g = narrow(make, shapes, "f16, bf16 and f32")
    scalars = [np.array(s) for s in (1e-3, 0.9, 0.999, 1e-8, 0.1)]
    scalars += [make.random.uniform(1.0, last, count) for last in (10.0, 900.0)]
    counts = ((count,) * 4 + (0,) + (1,) * 7, (count,) * 3 + (0, 0))
    attrs = {"groups": [0] * count, "indices": list(reversed(range(count)))}
    outputs = [make.out(*shape) for shape in shapes] * 3
    case = Case("", [*p, *g, *m, *v, *scalars], outputs, attrs, counts, each=True)
    assert not judge("adam_step", case, updates.run("adam_step", case))
    assert updates.launches == launches


def test_a_failed_check_skips_the_launch(updates: HostUpdates) -> None:
    for op in STATES:
        case = next(case for case in cases(op, "f32") if case.label.startswith("bf16 "))
        assert all(np.isnan(x).all() for x in updates.run(op, case, skip=True))

"""Generated kernels with their arrays, as a file that another machine can run: it needs NumPy and a driver only."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from cuda_driver import Bytes
from numpy.typing import NDArray


@dataclass
class Block:
    """A tensor's memory: its bytes, or how many for a result, and where they may lie."""

    element: str
    shape: list[int]
    strides: list[int]
    alignment: int
    size: int


@dataclass
class Packed:
    """A kernel ready to run."""

    name: str
    id: str
    phases: list[tuple[str, int, int, int]]
    """Function, blocks, threads of a block, bytes of shared memory."""
    workspace: int
    operands: list[Block]
    results: list[Block]
    in_place: list[tuple[int, int]]
    local: bool
    """Whether it may have memory of its threads' own."""
    rounds: int
    """How often the usual roundings it may have."""
    together: tuple[str, int, int, int] | None = None
    """The one function that does what all phases do, whose blocks wait for each other."""


@dataclass
class Case:
    """With its arrays."""

    packed: Packed
    image: bytes
    operands: list[Bytes]
    expected: list[NDArray[np.generic]]


def write(cases: Iterator[Case], path: Path) -> None:
    """A zip file of arrays, images and one JSON record a case."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for number, case in enumerate(cases):
            file.writestr(f"{number}/case.json", json.dumps(asdict(case.packed)))
            file.writestr(f"{number}/image", case.image)
            for kind, arrays in (("operand", case.operands), ("expected", case.expected)):
                for n, array in enumerate(arrays):
                    with file.open(f"{number}/{kind}{n}.npy", "w") as member:
                        np.save(member, array, allow_pickle=False)


def read(path: Path) -> Iterator[Case]:
    """What `write` wrote."""
    with zipfile.ZipFile(path) as file:
        names = set(file.namelist())
        number = 0
        while f"{number}/case.json" in names:
            record = json.loads(file.read(f"{number}/case.json"))
            blocks = {
                kind: [Block(**block) for block in record.pop(kind)] for kind in ("operands", "results")
            }
            record["phases"] = [tuple(phase) for phase in record["phases"]]
            record["together"] = record["together"] and tuple(record["together"])
            packed = Packed(**record, **blocks)
            arrays: dict[str, list[NDArray[np.generic]]] = {}
            for kind, count in (("operand", len(packed.operands)), ("expected", len(packed.results))):
                arrays[kind] = []
                for n in range(count):
                    with file.open(f"{number}/{kind}{n}.npy") as member:
                        arrays[kind].append(np.load(member, allow_pickle=False))
            operands = [array.view(np.uint8) for array in arrays["operand"]]
            yield Case(packed, file.read(f"{number}/image"), operands, arrays["expected"])
            number += 1

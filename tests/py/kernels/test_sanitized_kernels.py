"""What the GPU script's sanitizers run: no family is forgotten by a list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernel_cases import FAMILIES, FLOATS, GENERATORS, Maker, family_of, generated, of_family
from kernel_cases.races import LEFT_OUT, LIBRARIES, left_out

from aicf_mlir import _C
from aicf_mlir.ir.registry import schemas

ROOT = Path(__file__).resolve().parents[3]
VARIANTS = [each for each in _C.kernel_variants() if each["device"] == "cuda"]
PREBUILT = {op for op, schema in schemas().items() if not schema.generated}


def test_every_family_is_swept_or_left_out_for_a_reason() -> None:
    families = {family_of(op) for op in PREBUILT}
    swept = {family_of(each["op"]) for each in VARIANTS if not left_out(each)}
    assert families == swept | LEFT_OUT.keys()
    assert not swept & LEFT_OUT.keys()
    assert LEFT_OUT.keys() <= FAMILIES.keys()
    assert all(len(reason) > 20 for reason in (*LEFT_OUT.values(), *LIBRARIES.values()))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_of_kernels_has_cases(family: str) -> None:
    """A family is swept because its folder is there: each of its ops has cases, in the file of its name or as samples."""
    ops = {op for op in schemas() if family_of(op) == family}
    assert ops
    assert of_family(family).keys() <= ops
    for op in ops & PREBUILT:
        assert any(True for dtype in FLOATS for _ in generated(op, Maker(dtype))), f"{op} has no case"


def test_no_cases_are_of_a_family_that_is_gone() -> None:
    assert {family_of(op) for op in GENERATORS} <= FAMILIES.keys()
    files = {
        path.stem
        for path in (ROOT / "tests/py/support/kernel_cases").glob("*.py")
        if "\nCASES" in path.read_text()
    }
    assert files <= FAMILIES.keys()


def test_what_is_left_out_shares_no_memory() -> None:
    sources = list((ROOT / "csrc" / "kernels" / "eltwise").glob("*.cu*"))
    assert sources
    for path in sources:
        assert not re.search(r"__shared__|__shfl|__syncthreads|atomic", path.read_text()), path


def test_the_script_has_no_list() -> None:
    script = (ROOT / "scripts" / "gpu.sh").read_text()
    (line,) = (
        each for each in script.splitlines() if re.search(r'beside racecheck "\$\{kernels\[@\]\}"', each)
    )
    assert "--races" in line and "--only" not in line

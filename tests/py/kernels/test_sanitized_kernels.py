"""What the GPU script's sanitizers run: no family is forgotten by a list."""

from __future__ import annotations

import re
from pathlib import Path

from kernel_cases.races import LEFT_OUT, LIBRARIES, left_out

from aicf_mlir import _C

ROOT = Path(__file__).resolve().parents[3]
VARIANTS = [each for each in _C.kernel_variants() if each["device"] == "cuda"]


def test_every_family_is_swept_or_left_out_for_a_reason() -> None:
    families = {each["op"] for each in VARIANTS}
    swept = {each["op"] for each in VARIANTS if not left_out(each)}
    assert families == swept | LEFT_OUT.keys()
    assert not swept & LEFT_OUT.keys()
    assert all(len(reason) > 20 for reason in (*LEFT_OUT.values(), *LIBRARIES.values()))
    assert {"attention", "attention_grad", "scatter_add", "gemm", "softmax"} <= swept


def test_what_is_left_out_shares_no_memory() -> None:
    sources = list((ROOT / "csrc" / "kernels" / "eltwise").glob("*.cu*"))
    assert sources
    for path in sources:
        assert not re.search(r"__shared__|__shfl|__syncthreads|atomic", path.read_text()), path


def test_the_script_has_no_list() -> None:
    script = (ROOT / "scripts" / "gpu.sh").read_text()
    (line,) = (
        each for each in script.splitlines() if re.search(r'clean racecheck "\$\{kernels\[@\]\}"', each)
    )
    assert "--races" in line and "--only" not in line

"""Digests of generated texts, in generated_texts.txt: python tests/py/support/generated_texts.py writes the file again.

The text of a kernel may change only with `GENERATOR` (aicf_mlir/kernels/kernel.py), on which ids and the cache depend.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from across_cases import CASES, down_columns
from chain_cases import mixed, trained, with_tanh
from generated_cases import random_kernel
from generated_models import columns_as_rows
from segment_cases import kernels as segment_kernels
from segment_cases import row_kernels

from aicf_mlir.codegen.schedule import generate, reason
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.dialects.plan.kernels import generated_kernels
from aicf_mlir.kernels import kernel as codegen
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.stages import make_context, run_stages
from aicf_mlir.text.parsing import parse_module

FILE = Path(__file__).with_name("generated_texts.txt")
STEP = Path(__file__).resolve().parents[3] / "examples" / "train_step.mlir"
TARGETS = ("cpu", "sm_80", "sm_90")
EACH = 4


def sampled(target: str) -> Iterator[tuple[str, Kernel]]:
    """Kernels of every kind by name, always the same."""
    for kind in ("map", "rowwise", "colwise"):
        for number in range(EACH):
            yield f"{kind} {number}", random_kernel(np.random.default_rng((31, number)), kind, target)
    for element in ("f16", "bf16"):
        chains = (
            with_tanh(target, 777, [16, 64, 32], element),
            mixed(target, 1001, element),
            trained(target, 1001, [64] * 5, element, "f32", "f32", range(4)),
        )
        yield from (
            (f"chain {number} {element}", chain) for number, chain in enumerate(chains) if not reason(chain)
        )
    for name in ("normalised", "gradient"):
        yield f"across {name}", replace(down_columns(CASES[name]("bf16", 64, 3000)), target=target)
    yield "columns as rows", columns_as_rows("bf16", 64, 7, target)
    yield from ((f"segments {name}", kernel) for name, kernel in segment_kernels(target))
    yield from ((f"rows of segments {name}", kernel) for name, kernel in row_kernels(target))
    module = parse_module(STEP.read_text())
    run_stages(module, make_context(), target=target)
    for number, kernel in enumerate(generated_kernels(find_program(module)).values()):
        yield f"step {number} {kernel.kind}", kernel


def digests() -> dict[str, str]:
    """By target and name, that of the text without the id, which has the number of the generator in it."""
    found: dict[str, str] = {}
    for target in TARGETS:
        for name, kernel in sampled(target):
            source = generate(kernel).source.replace(kernel.symbol, "ID")
            found[f"{target} {name}"] = hashlib.sha256(source.encode()).hexdigest()[:16]
    return found


def read(text: str) -> tuple[int, dict[str, str]]:
    """The generator's number and the digests in the file."""
    first, *lines = text.splitlines()
    return int(first.removeprefix("generator ")), {line[17:]: line[:16] for line in lines}


def write(generator: int, found: dict[str, str]) -> str:
    """The reverse."""
    return (
        "\n".join((f"generator {generator}", *(f"{digest} {name}" for name, digest in found.items()))) + "\n"
    )


def fault(text: str, generator: int, found: dict[str, str]) -> str:
    """What is wrong with a file that has `text`, and what to do; "" where nothing is."""
    number, known = read(text)
    changed = [name for name in found if known.get(name) != found[name]]
    changed += [name for name in known if name not in found]
    again = "run `python tests/py/support/generated_texts.py` and commit generated_texts.txt"
    if changed and generator == number:
        return (
            f"the texts of {len(changed)} kernels changed, {changed[0]!r} first, and GENERATOR is still {number}: cached code"
            f" of the old text would run. Count GENERATOR up in aicf_mlir/kernels/kernel.py, then {again}"
        )
    if generator != number:
        return f"generated_texts.txt is of GENERATOR {number}, which is {generator} now: {again}"
    return ""


def main() -> None:
    """Write the file; refuse where texts changed and the number did not, unless --first says that no code of it is cached."""
    generator, found = codegen.GENERATOR, digests()
    if FILE.exists() and "--first" not in sys.argv[1:]:
        wrong = fault(FILE.read_text(), generator, found)
        if wrong.startswith("the texts"):
            raise SystemExit(wrong)
    FILE.write_text(write(generator, found))
    print(f"{FILE.name}: {len(found)} texts of generator {generator}")


if __name__ == "__main__":
    main()

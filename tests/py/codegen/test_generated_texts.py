"""Texts of generated kernels change only with the number of the generator, and ids follow from every field."""

from __future__ import annotations

import re
from dataclasses import replace

import generated_texts as texts
import numpy as np
import pytest
from chain_cases import mixed
from generated_cases import random_kernel

from aicf_mlir.kernels import kernel as codegen
from aicf_mlir.kernels.column_sums import PartKernel
from aicf_mlir.kernels.identity import kernel_id, written
from aicf_mlir.kernels.kernel import Kernel


def test_no_text_changed_without_the_generator() -> None:
    fault = texts.fault(texts.FILE.read_text(), codegen.GENERATOR, texts.digests())
    assert not fault, fault


def test_says_what_to_do() -> None:
    found = {"cpu map 0": "a" * 16, "cpu map 1": "b" * 16}
    written_file = texts.write(7, found)
    assert texts.read(written_file) == (7, found)
    assert texts.fault(written_file, 7, found) == ""
    changed = (
        "the texts of 1 kernels changed, 'cpu map 1' first, and GENERATOR is still 7: .*Count GENERATOR up in"
    )
    assert re.match(changed, texts.fault(written_file, 7, {**found, "cpu map 1": "c"}))
    assert re.match(changed, texts.fault(written_file, 7, {"cpu map 0": "a" * 16}))
    number = "generated_texts.txt is of GENERATOR 7, which is 8 now: run `python tests/py/support/generated_texts.py`"
    assert texts.fault(written_file, 8, {**found, "cpu map 1": "c"}).startswith(number)


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_an_id_follows_from_every_field(target: str) -> None:
    kernel = random_kernel(np.random.default_rng(3), "rowwise", target)
    other = random_kernel(np.random.default_rng(4), "rowwise", target)
    chain = mixed(target, 64, "bf16")
    changes = {
        "kind": "map",
        "target": "sm_80",
        "body": other.body,
        "domain": (*kernel.domain, 1),
        "reduced": kernel.reduced + 1,
        "operands": kernel.operands[1:],
        "results": (),
        "ahead": (0,),
    }
    ids = [kernel.id, *(replace(kernel, **{name: value}).id for name, value in changes.items())]
    ids += [chain.id, replace(chain, links=chain.links[1:]).id, replace(chain, b_count=7).id]
    assert len(set(ids)) == len(ids)
    assert kernel_id(kernel, codegen.GENERATOR) == kernel.id != kernel_id(kernel, codegen.GENERATOR + 1)


def test_only_code_that_takes_every_address_forgets_alignment() -> None:
    for target, same in (("cpu", True), ("sm_90", False)):
        kernel = random_kernel(np.random.default_rng(3), "map", target)
        moved = replace(kernel, operands=tuple(replace(each, alignment=2) for each in kernel.operands))
        assert (moved.id == kernel.id) == same


def test_refuses_what_has_no_text() -> None:
    kernel = random_kernel(np.random.default_rng(3), "map", "cpu")
    with pytest.raises(
        TypeError, match=r"expected numbers, texts, tuples, bodies .*, got list; give it a field"
    ):
        written(replace(kernel, domain=[1]), False)  # type: ignore[arg-type]


def test_no_kernel_names_itself() -> None:
    """But the part of one, which has the name of the whole."""
    waiting, found = [Kernel], list[type]()
    while waiting:
        found += (own := waiting.pop().__subclasses__())
        waiting += own
    assert found and not [each for each in found if "id" in vars(each) and each is not PartKernel]

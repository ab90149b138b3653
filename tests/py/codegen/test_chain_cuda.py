"""The CUDA text of chains: what is refused and why, that it compiles, and that its registers hold all that is kept."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import children
import pytest
from chain_builder import ChainBuilder
from chain_cases import Chain, chains, mixed, trained, with_tanh
from chain_walk import walked
from drawn_chains import added_once, divided, turns

from aicf_mlir.codegen import nvrtc
from aicf_mlir.codegen.cuda import generate, workspace
from aicf_mlir.codegen.cuda.back_to_back import reason
from aicf_mlir.codegen.cuda.back_to_back_plan import ChainSchedule
from aicf_mlir.codegen.cuda.back_to_back_schedule import plan_of
from aicf_mlir.codegen.cuda.dependency import all_wait
from aicf_mlir.codegen.schedule import scheduled
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir import formula as F
from aicf_mlir.ir.chips import CHIPS
from aicf_mlir.ir.registry import is_cpu
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Yield
from aicf_mlir.kernels.kernel import Tensor

CHAINS = list(chains())


def plan(kernel: BackToBackKernel) -> ChainSchedule:
    found = plan_of(kernel)
    assert isinstance(found, ChainSchedule), found
    return found


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_the_text_of_a_chain_is_launched_as_its_plan_says(chain: Chain) -> None:
    kernel = chain.kernel
    assert isinstance(kernel, BackToBackKernel)
    assert not reason(kernel)
    made = generate(kernel)
    assert made == generate(kernel)
    assert made.workspace == workspace(kernel)
    assert all_wait(made.source)
    assert made.phases[0].shared <= CHIPS["sm_90"].shared_of_block
    summed = kernel.outers or any(made.column_sum for _, made in kernel.values)
    assert len(made.phases) == (2 if summed else 1)


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_what_is_read_of_shared_memory_lies_there(chain: Chain) -> None:
    """Nothing is written over that is read later, or that an outer product still reads."""
    kernel = chain.kernel
    assert isinstance(kernel, BackToBackKernel)
    walk = walked(kernel, plan(kernel), generate(kernel).source)
    assert not walk.faults
    assert walk.lies and bool(walk.outer_products) == bool(kernel.outers)


def test_a_strip_that_lies_where_another_is_still_read_is_found() -> None:
    """By the walk, of a text that was changed."""
    kernel = trained("sm_90", 1001, [128] * 5, "bf16", weights=(3,))
    source = generate(kernel).source
    early = "    aicf::chain::wait_products(d0);\n    __syncthreads();\n"
    assert source.count(early) == 1
    faults = walked(kernel, plan(kernel), source.replace(early, "")).faults
    assert faults[0] == "y5 at 4096 while an outer product reads 4096 to 8192"
    moved = source.replace("::write(strip + 8192, y0)", "::write(strip + 4096, y0)")
    assert moved != source and walked(kernel, plan(kernel), moved).faults


def test_tiles_of_links_take_turns_where_shared_memory_does_not_hold_all() -> None:
    found = plan(turns("sm_90", 1001, 96, "f16"))
    assert not found.alone
    assert [fetch.operand for fetch in found.behind(-1)] == [2, 3]
    assert [fetch.operand for fetch in found.behind(1)] == [6, 7]
    assert not found.behind(3)
    assert len({fetch.place for fetch in found.fetches}) == 2


def test_the_columns_of_a_left_side_are_added_once() -> None:
    text = generate(added_once("sm_90", 1001, "bf16")).source
    assert text.count("outer_8(s0 + 0") == text.count("outer_8(s1 + 0") == 1


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_warpgroups_meet_equally_often(chain: Chain) -> None:
    """One that has a tile less makes up for as many meetings as a tile has."""
    assert isinstance(chain.kernel, BackToBackKernel)
    text = generate(chain.kernel).source
    made_up = re.findall(r"for \(int i = 0; i < (\d+); \+\+i\) aicf::chain::meet", text)
    in_a_tile = text.count("aicf::chain::meet(") - len(made_up)
    assert made_up == ([str(in_a_tile)] if in_a_tile else [])


def test_rows_that_are_not_there_multiply_nothing_on_either_side() -> None:
    """No zero by what is no number."""
    text = generate(divided("sm_90", 130, "f16")).source
    assert len(re.findall(r"y[01]\[p\] = lane / 4 \+ p % 2 \* 8 < rows \?", text)) == 2
    assert "< rows ? aicf" not in generate(divided("sm_90", 128, "f16")).source


@pytest.mark.nvrtc
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_a_chain_compiles_without_spills(chain: Chain) -> None:
    made = generate(chain.kernel)
    assert nvrtc.architecture(made.source, chain.kernel.target) == "sm_90a"
    report = nvrtc.compile_with_report(made.source, "sm_90")[1]
    assert report.count("0 bytes spill stores, 0 bytes spill loads") == len(made.phases)
    threads = made.phases[0].threads
    assert all(int(used) * threads <= 65536 for used in re.findall(r"Used (\d+) registers", report)[-1:])


@pytest.mark.skipif(
    not nvrtc.available() and shutil.which("nvcc") is None, reason="neither NVRTC nor nvcc is here"
)
@pytest.mark.parametrize("target", ["sm_80", "sm_100"])
def test_parts_compile_for_other_chips(target: str, tmp_path: Path) -> None:
    """With a batch of f32, column sums, products over rows and values that are not written."""
    source = generate(trained(target, 1001, [64, 48, 16], "bf16", a_element="f32", weights={0, 1})).source
    if nvrtc.available():
        assert nvrtc.compile_cuda(source, target)
        return
    (tmp_path / "chain.cu").write_text(source)
    done = children.run(["nvcc", f"-arch={target}", "-cubin", "chain.cu"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_only_texts_with_warpgroup_products_are_compiled_for_one_capability() -> None:
    assert nvrtc.architecture('asm volatile("wgmma.fence.sync.aligned;");', "sm_90") == "sm_90a"
    assert nvrtc.architecture("// no wgmma", "sm_90") == "sm_90"
    assert nvrtc.architecture('asm volatile("wgmma.fence.sync.aligned;");', "sm_100") == "sm_100"


def test_relu_keeps_a_bit_of_each_value_and_tanh_the_value() -> None:
    relu = plan(trained("sm_90", 256, [64, 64, 64, 64], "f16"))
    assert [(flags.value, flags.link) for flags in relu.flags] == [(0, 4), (1, 3)]
    assert not relu.kept
    tanh = plan(with_tanh("sm_90", 256, [64, 64, 64], "f16"))
    assert not tanh.flags
    assert tanh.kept == (0,)


def test_weights_that_links_share_lie_in_shared_memory_once() -> None:
    found = plan(trained("sm_90", 256, [128] * 4, "bf16"))
    assert found.weights == ((0, 0), (1, 32768), (2, 65536))


def test_gradients_of_weights_keep_what_they_take_in_shared_memory() -> None:
    kernel = trained("sm_90", 256, [64, 48, 64, 32], "bf16", "f32", "f32", (0, 2))
    found = plan(kernel)
    hidden, last, first = (
        1,
        3,
        5,
    )  # the activation of the second layer, the gradients of the third and the first
    assert [(outer.left, outer.right) for outer in kernel.outers] == [(first, None), (last, hidden)]
    assert set(kernel.multiplied) == {hidden, last, first}
    assert len({dict(found.places)[value] for value in (-1, hidden, last, first)}) == 4
    assert found.ready == (4, 2)
    assert found.by_products == (last, first)
    assert found.fetches[0].element == "f32"
    whole = plan(trained("sm_90", 256, [64] * 5, "bf16", "f32", "f32", range(4)))
    places = dict(whole.places)
    assert len(places) == 8
    assert len(set(places.values())) == 6  # the last two gradients lie where the first products have read


def _wide() -> BackToBackKernel:
    return trained("sm_90", 256, [128] * 3, "bf16")


def _with_first_link(**changed: Any) -> BackToBackKernel:
    kernel = _wide()
    return replace(kernel, links=(replace(kernel.links[0], **changed), *kernel.links[1:]))


def _odd() -> BackToBackKernel:
    chain = ChainBuilder("sm_90", 256, 64, "f16")
    chain.link(72, [], lambda z: z + 1.0, [("f16", "w")])
    return chain.finish()


def _many() -> BackToBackKernel:
    chain = ChainBuilder("sm_90", 256, 128, "f16")
    for number in range(8):
        chain.link(128, [], lambda z: F.maximum(z, 0.0), [("f16", "wn" if number < 7 else "w")])
    return chain.finish()


def _kept() -> BackToBackKernel:
    chain = ChainBuilder("sm_90", 256, 128, "f16")
    made = [chain.link(128, [], lambda z: (z, z + 1.0), [("f16", "n"), ("f32", "")]) for _ in range(3)]
    chain.link(
        128, [("y", value + 1) for value in made], lambda z, *h: z + h[0] + h[1] + h[2], [("f16", "w")]
    )
    return chain.finish()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (replace(_wide(), target="sm_80"), "needs compute capability 9.0, got sm_80"),
        (replace(_wide(), target="sm_100"), "needs compute capability 9.0, got sm_100"),
        (replace(_wide(), target="cpu"), "needs compute capability 9.0, got cpu"),
        (_odd(), "link 0: expected widths up to 128 in steps of 16, got 72"),
        (_many(), r"its weights and tiles need \d+ bytes of shared memory, there are 232448"),
        (_kept(), "needs more registers than there are"),
        (trained("sm_90", 256, [128] * 3, "f16", weights=(0, 1)), "needs more registers than there are"),
        (
            replace(_wide(), operands=(Tensor("bf16", (256, 128), (128, 1), 2), *_wide().operands[1:])),
            "a: expected rows without gaps, aligned to 16 bytes",
        ),
        (trained("sm_90", 0, [64] * 3, "f16"), "has no rows"),
        (
            replace(_wide(), a_rounded=Tensor("bf16", (256, 128), (128, 1), 2)),
            "a: expected rows without gaps, aligned to 16 bytes, where it is written, got",
        ),
        (
            _with_first_link(b=Tensor("bf16", (128, 128), (128, 1), 2)),
            "link 0: expected b by rows without gaps, aligned to 16 bytes",
        ),
        (
            _with_first_link(yields=(Yield(Tensor("bf16", (256, 128), (128, 1), 2), None, True, "bf16"),)),
            "y0: expected rows without gaps, aligned to 16 bytes, where it is written",
        ),
        (
            _with_first_link(yields=(Yield(None, None, True, "f64"),)),
            "y0: expected elements of f16, bf16 or f32, got f64",
        ),
    ],
)
def test_what_has_no_tiles_is_in_parts(kernel: BackToBackKernel, message: str) -> None:
    assert re.match(message, reason(kernel))
    if is_cpu(kernel.target) or "f64" in message:  # one is no target for it, the other no chain
        return
    with pytest.raises(SelectionError, match=message):
        scheduled(kernel, "tiles")
    assert scheduled(kernel).schedule == "parts"
    code = generate(kernel)
    assert code.phases
    assert code.workspace == workspace(kernel)


def test_mixed_operands_are_brought_as_they_lie() -> None:
    kernel = mixed("sm_90", 1001, "bf16")
    found = plan(kernel)
    first = 1 + len(kernel.bs)
    assert [fetch.operand for fetch in found.fetches] == [0, first + 2, first + 3]
    assert [operand for operand, _ in found.vectors] == [first + 1]

"""Faults planted in plans, stages, bound launches and memory: each test names the check that finds it."""

from __future__ import annotations

import dataclasses
import re
from copy import deepcopy

import numpy as np
import pytest
from models import (
    mlp,
)
from planted import Gated, Planted, Side, examined, failing, found
from torch import nn

from aicf_mlir import _C
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.errors import PlanError


def test_a_baked_in_lr_is_found_by_the_reference() -> None:
    """The optimizer reads a constant where lr stands: eager and replay agree, and at lr = 0.01 torch does too."""
    planted = Planted()
    planted.edit("plan.arena @const 256", "plan.arena @const 512")
    peak = find_program(planted.stages["plan"]).peak_bytes or 0
    planted.edit(f"peak {peak}", f"peak {peak + 256}")
    planted.edit(
        "    plan.launch @k0",
        "    plan.slot @c9 in @const[256] : memref<f64> const 0.01\n    plan.launch @k0",
    )
    planted.edit("lr(@lr)", "lr(@c9)")
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    message, culprit = found(certificate, "reference")
    assert culprit == "k8 adam_step"
    assert "param '0.weight': error" in message
    assert "the plan gives it other operands, attributes or body" in message


def test_a_skipped_counter_is_found_by_the_reference() -> None:
    planted = Planted()
    text = re.sub(r"    plan.launch @k7 .*\n", "", str(planted.stages["buffers"]))
    planted.replace("buffers", text.replace(", @k7", ""))
    planted.redo("plan")
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    message, culprit = found(certificate, "reference")
    assert culprit == "k8 adam_step"
    assert "state 'step': error" in message
    assert "the plan launches adam_step where stage 'kernel' has kernel.advance" in message


def test_a_stale_temporary_read_is_found_by_poison() -> None:
    """A launch is bound to memory that nothing has written yet in this step."""
    planted = Planted()
    launches = deepcopy(planted.program().launches)
    unwritten = planted.program().slots["dp2.weight"]
    arena, _, dtype, shape = launches[1]["inputs"][0][:4]
    launches[1]["inputs"][0] = (arena, unwritten.offset, dtype, shape)
    certificate = examined(planted.subject(launches=launches))
    assert failing(certificate) == ["binding", "replay", "reference"]
    replays = certificate.of("replay")
    assert "replay(3) differs from eager steps in" in replays[0].message
    assert {str(finding.culprit).split(" at ")[0] for finding in replays} == {
        '@k1 gemm_epilogue "gemm_epilogue_cpu_blas"'
    }
    assert found(certificate, "reference")[1] == "k1 gemm_epilogue"


def test_an_offset_off_by_one_element_is_found_by_the_binding_and_by_the_reference() -> None:
    planted = Planted()
    launches = deepcopy(planted.program().launches)
    arena, offset, dtype, shape = launches[0]["inputs"][1][:4]
    launches[0]["inputs"][1] = (arena, offset + 4, dtype, shape)
    certificate = examined(planted.subject(launches=launches))
    assert failing(certificate) == ["binding", "reference"]
    message, culprit = found(certificate, "binding")
    assert culprit == "k0 gemm_epilogue"
    assert "('param', 4, 'f32', (17, 8))" in message
    assert found(certificate, "reference")[1] == "k0 gemm_epilogue"


def test_a_missing_after_is_found_by_the_plan_verifier() -> None:
    planted = Planted()
    planted.edit(" after @k0\n    plan.launch @k2 ", "\n    plan.launch @k2 ")
    certificate = examined(planted.subject())
    assert failing(certificate) == ["plan"]
    message, culprit = found(certificate, "plan")
    assert culprit == "k1 gemm_epilogue"
    assert "@k1 must be after @k0" in message


def test_work_in_place_that_a_kernel_cannot_do_is_found_by_the_plan_verifier() -> None:
    """A product is written over its own operand."""
    planted = Planted(Gated())
    honest = planted.program()
    planted.edit("-> y(@linear1, @mul)", "-> y(@tanh, @mul)")
    with pytest.raises(
        PlanError,
        match=r"launch @k1 \(gemm_map, .*\): output 0 is the memory of input 0",
    ):
        planted.subject()  # the runtime refuses it on its own, too
    certificate = examined(planted.subject(slots=honest.slots, launches=honest.launches))
    assert failing(certificate) == ["plan", "binding"]
    message, culprit = found(certificate, "plan")
    assert culprit == "k1 gemm_map"
    assert "@k1 reads @tanh and writes @tanh in the same memory, which gemm_map cannot do" in message


def test_a_wrong_work_in_place_is_found_by_the_reference() -> None:
    """The product of h and lin(x) is written over h, which backward still reads: a valid plan of another step."""
    planted = Planted(Side())
    text = str(planted.stages["buffers"])
    match = re.search(r" gemm_map a\(@x\) .* x\(@view, @(tanh)\) -> y\(@linear1, @(mul)\)", text)
    assert match is not None
    source, target = match.groups()
    text = re.sub(rf"    plan.slot @{target} .*\n", "", text)
    planted.replace("buffers", re.sub(rf"@{target}\b", f"@{source}", text))
    planted.redo("plan")
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    message, culprit = found(certificate, "reference")
    assert culprit.split()[1] in ("gemm_map", "gemm_epilogue", "mse_grad", "map")
    assert "a launch differs from its op in stage 'kernel'" in message


def test_a_wrong_body_is_found_by_the_reference() -> None:
    """A factor of a generated kernel is another one, and the id that of the kernel that computes it."""
    planted, other = Planted(Gated()), Planted(Gated())
    (factor,) = set(re.findall(r"arith.constant 1.000000e\+00", str(other.stages["fused"])))
    other.replace("fused", str(other.stages["fused"]).replace(factor, "arith.constant 1.500000e+00"))
    other.redo("kernel")
    planted.stages["plan"] = other.stages["plan"]
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    message, culprit = found(certificate, "reference")
    assert culprit.split()[1] == "gemm_map"
    assert "the plan gives it other operands, attributes or body" in message


@pytest.mark.parametrize("wrong", ["gelu_tanh", "silu"])
def test_a_wrong_epilogue_is_found_by_the_reference(wrong: str) -> None:
    planted = Planted()
    planted.edit('act = "gelu", trans_b', f'act = "{wrong}", trans_b')
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    message, culprit = found(certificate, "reference")
    assert culprit == "k0 gemm_epilogue"
    assert "the plan gives it other operands, attributes or body" in message


def test_a_wrong_fusion_is_found_at_its_stage() -> None:
    planted = Planted()
    planted.edit('act = "gelu", trans_b', 'act = "gelu_tanh", trans_b', stage="fused")
    planted.redo("kernel")
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    message, culprit = found(certificate, "reference")
    assert culprit == "k0 gemm_epilogue"
    assert "stage 'fused' says something else than stage 'lowered', from kernel.gemm_epilogue at" in message


class Recorded:
    """An executor whose graph was recorded from other launches than those it runs: both are real."""

    def __init__(self, eager: _C.Executor, recorded: _C.Executor):
        self.eager, self.recorded, self.last = eager, recorded, eager

    def run(self, stream: int = 0) -> None:
        self.last = self.eager
        self.eager.run(stream)

    def replay(self, n: int = 1, stream: int = 0) -> None:
        self.last = self.recorded
        self.recorded.replay(n, stream)

    def trace(self) -> list[str]:
        return self.last.trace()


def test_a_kernel_that_differs_in_the_graph_is_found_by_the_replay_and_the_trace() -> None:
    planted = Planted(mlp(8, 300, 8, activation=nn.GELU))
    subject = planted.subject()
    launches = deepcopy(subject.program.launches)
    launches[4]["kernel_id"] = "gemm_epilogue_cpu_plain"
    other = _C.Executor("cpu", subject.arenas, launches)
    other.capture()
    certificate = examined(dataclasses.replace(subject, executor=Recorded(subject.executor, other)))
    assert failing(certificate) == ["replay", "kernels"]
    assert (
        'ran "gemm_epilogue_cpu_plain" where "gemm_epilogue_cpu_blas" is planned'
        in found(certificate, "kernels")[0]
    )
    assert found(certificate, "kernels")[1] == "k4 gemm_epilogue"
    assert "no part of the plan shows it when recorded anew" in certificate.of("replay")[0].message


def test_a_write_beyond_a_slot_is_found_in_the_memory_between() -> None:
    planted = Planted()
    launches = deepcopy(planted.program().launches)
    for operands in (launches[7]["inputs"], launches[7]["outputs"]):
        operands[0] = ("state", 0, "f32", (8,))
    corrections = launches[7]["outputs"]  # one for each counter
    corrections[1:] = [(*place[:3], (8,)) for place in corrections[1:]]
    certificate = examined(planted.subject(launches=launches))
    assert "memory" in failing(certificate)
    findings = certificate.of("memory")  # in the state, and beside the bias corrections
    assert {finding.culprit and finding.culprit.launch for finding in findings} == {"k7"}
    message = "a step changes byte 18 of @state, which no launch names as an output"
    assert any(message in finding.message for finding in findings)


def test_a_constant_that_was_overwritten_is_found_by_the_binding() -> None:
    subject = Planted().subject()
    (constant,) = [slot for slot in subject.program.slots.values() if slot.role == "const"]
    subject.write(constant, np.full(constant.shape, 2.0, np.float32))
    certificate = examined(subject)
    assert failing(certificate) == ["binding", "reference"]
    assert found(certificate, "binding")[0] == "the constant @c0 is not 1.0 in memory"
    assert found(certificate, "reference")[1] == "k3 mse_grad"


def test_a_kernel_that_computes_something_else_is_told_from_a_wrong_plan() -> None:
    """Bound with another activation than the plan names: as if the kernel were wrong."""
    planted = Planted()
    launches = deepcopy(planted.program().launches)
    launches[0]["attrs"] = {**launches[0]["attrs"], "act": "silu"}
    certificate = examined(planted.subject(launches=launches))
    assert failing(certificate) == ["binding", "reference"]
    assert "its kernel computes it wrongly" in found(certificate, "reference")[0]


def test_exchanged_hyperparameters_are_found_by_the_reference() -> None:
    planted = Planted()
    planted.edit("eps(@eps) weight_decay(@weight_decay)", "eps(@weight_decay) weight_decay(@eps)")
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    assert found(certificate, "reference")[1] == "k8 adam_step"

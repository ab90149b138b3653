"""The certificate: honest steps are equal, and each planted fault is found by the check that its test names."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import threading
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from models import CONTRACT_OPTIMIZERS, OptimizerConfig, compiled, mlp, mse, regression
from oracle import assert_same_bits
from torch import nn
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import _C
from aicf_mlir.diagnostics import Source
from aicf_mlir.dialects.plan.hazards import order_launches
from aicf_mlir.errors import BindError, PlanError, StateError
from aicf_mlir.frontend import trace
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.parsing import make_context, parse_source
from aicf_mlir.runtime.certificate import CHECKS, Certificate, Subject, certify
from aicf_mlir.runtime.program import Program, find_program, load_program
from aicf_mlir.stages import Snapshots, run_stages

ADAM = CONTRACT_OPTIMIZERS[3]
METAS = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "bc1_pin": np.nan, "bc2_pin": np.nan}


# ---- honest steps ----


@pytest.mark.parametrize("optimizer", CONTRACT_OPTIMIZERS, ids=str)
def test_an_honest_step_is_equal_and_stays_as_it_was(optimizer: OptimizerConfig, device: str) -> None:
    setup = compiled(optimizer, device)
    setup.train(2)
    before, settings = setup.values(), deepcopy(setup.optimizer.param_groups[0])
    certificate = setup.step.capture(setup.batch, verify="bitwise", steps=3)
    assert certificate.equal, str(certificate)
    assert_same_bits(setup.values(), before)
    assert {k: v for k, v in setup.optimizer.param_groups[0].items() if k != "params"} == {
        k: v for k, v in settings.items() if k != "params"
    }
    control = compiled(optimizer, device)
    control.train(5)
    setup.step.replay(3)
    assert_same_bits(setup.values(), control.values())


def test_before_the_first_step_opt_state_stays_empty(device: str) -> None:
    setup = compiled(ADAM, device)
    setup.step.warmup(setup.batch)
    assert setup.step.capture(setup.batch, verify="bitwise").equal
    assert not setup.optimizer.state


def test_the_report_prints_and_is_json() -> None:
    setup = compiled(ADAM)
    setup.train()
    certificate = setup.step.capture(setup.batch, verify="bitwise", steps=2)
    text = str(certificate)
    assert text.startswith("step on cpu: equal (9 launches, 2 steps, ")
    assert [line.split()[1] for line in text.splitlines()[1:]] == list(CHECKS)
    found = json.loads(certificate.to_json())
    assert (found["equal"], found["launches"], found["findings"]) == (True, 9, [])


def test_what_capture_cannot_verify() -> None:
    setup = compiled(ADAM)
    setup.train()
    with pytest.raises(BindError, match=r'capture\(verify=…\) takes "bitwise" or None, got \'close\''):
        setup.step.capture(setup.batch, verify="close")  # pyright: ignore[reportCallIssue]
    for steps in (0, True, 1.5):
        with pytest.raises(BindError, match=r"capture\(steps=…\) needs a positive integer"):
            setup.step.capture(setup.batch, verify="bitwise", steps=steps)
    assert setup.step.state == "warmed"


# ---- steps to plant faults in ----


class Gated(nn.Module):
    """h · lin(h) with h = tanh(lin(x)): backward reads both factors."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.first(x))
        return h * self.second(h)


class Planted:
    """A step on arenas of its own, with a fault between the model and what is bound."""

    def __init__(self, model: nn.Module | None = None):
        model = model or mlp(8, 17, 8, activation=nn.GELU)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        self.batch = regression(5)
        traced = trace(model, mse, self.batch, optimizer=optimizer)
        self.parameters = {name: p.detach().numpy() for name, p in traced.parameters.items()}
        snapshots = Snapshots()
        run_stages(traced.module, make_context(), after_each=snapshots)
        self.stages: dict[str, ModuleOp] = dict(snapshots)

    def edit(self, old: str, new: str, stage: str = "plan") -> None:
        """Replace the one text `old` in a stage; its launches keep their source lines."""
        text = str(self.stages[stage])
        assert text.count(old) == 1, f"{text.count(old)} times {old!r} in\n{text}"
        self.replace(stage, text.replace(old, new))

    def replace(self, stage: str, text: str) -> None:
        """Give a stage another text."""
        module = parse_source(make_context(), Source("edited", text)).module
        known = {op.attributes.get("sym_name") or str(op): op.location for op in self.stages[stage].walk()}
        for op in module.walk():
            op.location = known.get(op.attributes.get("sym_name") or str(op), next(reversed(known.values())))
        self.stages[stage] = module

    def redo(self, first: str) -> None:
        """Run the stages after the one that was edited again; what must wait for what follows from the launches."""
        names = list(self.stages)
        module = self.stages[names[names.index(first) - 1]].clone()
        if first == "plan":
            order_launches(find_program(module).launches, find_program(module).slots)
        run_stages(module, make_context(), first=first, after_each=self.stages.__setitem__)

    def subject(self, **changes: Any) -> Subject:
        """The step bound and captured; `changes` are fields of its Program."""
        program = dataclasses.replace(load_program(self.stages["plan"]), **changes)
        arenas = {name: _C.Arena("cpu", nbytes) for name, nbytes in program.arenas.items()}
        executor = _C.Executor("cpu", arenas, program.launches)
        executor.capture()
        subject = Subject(
            "planted", program, load_program(self.stages["plan"]), self.stages, arenas, executor, "cpu", 0
        )
        self.fill(subject)
        return subject

    def fill(self, subject: Subject) -> None:
        values: Mapping[str, Any] = {
            **METAS,
            **self.parameters,
            **{k: t.numpy() for k, t in self.batch.items()},
        }
        for slot in subject.program.slots.values():
            value = slot.value if slot.role == "const" else values.get(slot.name, 0.0)
            if slot.role not in ("temp", "output", "grad"):
                subject.write(
                    slot, np.broadcast_to(np.asarray(value), slot.shape).astype(NUMPY_TYPES[slot.dtype])
                )

    def program(self) -> Program:
        """What the plan's text says, to be changed."""
        return load_program(self.stages["plan"])


def examined(subject: Subject) -> Certificate:
    """Its certificate; every byte that lasts must be as it was."""
    before = [subject.arenas[name].read(at, size) for name, at, size in subject.compared()]
    certificate = certify(subject, 3)
    assert [subject.arenas[name].read(at, size) for name, at, size in subject.compared()] == before
    return certificate


def found(certificate: Certificate, check: str) -> tuple[str, str]:
    """Message and op of the one finding of a check; its launch must have the user's line."""
    (finding,) = certificate.of(check)
    if finding.culprit is None:
        return finding.message, ""
    assert finding.culprit.op == "advance" or re.search(r"\.py:\d+$", finding.culprit.source)
    return finding.message, f"{finding.culprit.launch} {finding.culprit.op}"


def failing(certificate: Certificate) -> list[str]:
    """The checks that do not hold."""
    return [check for check in CHECKS if certificate.of(check)]


def test_without_a_fault_it_is_equal() -> None:
    for model in (None, Gated()):
        certificate = examined(Planted(model).subject())
        assert certificate.equal, str(certificate)


# ---- planted faults ----


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
    planted.edit("@lr, @beta1, @beta2, @eps", "@c9, @beta1, @beta2, @eps")
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    message, culprit = found(certificate, "reference")
    assert culprit == "k8 adam_step"
    assert "param '0.weight': error" in message
    assert "the plan gives it other operands or attributes" in message


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
    unwritten = planted.program().slots["v4"]
    arena, _, dtype, shape = launches[1]["inputs"][0]
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
    arena, offset, dtype, shape = launches[0]["inputs"][1]
    launches[0]["inputs"][1] = (arena, offset + 4, dtype, shape)
    certificate = examined(planted.subject(launches=launches))
    assert failing(certificate) == ["binding", "reference"]
    message, culprit = found(certificate, "binding")
    assert culprit == "k0 gemm_epilogue"
    assert "('param', 4, 'f32', (17, 8))" in message
    assert found(certificate, "reference")[1] == "k0 gemm_epilogue"


def test_a_missing_after_is_found_by_the_plan_verifier() -> None:
    planted = Planted()
    planted.edit("{bias = true, trans_b = true} after @k0", "{bias = true, trans_b = true}")
    certificate = examined(planted.subject())
    assert failing(certificate) == ["plan"]
    message, culprit = found(certificate, "plan")
    assert culprit == "k1 gemm_epilogue"
    assert "@k1 must be after @k0" in message


def test_work_in_place_that_a_kernel_cannot_do_is_found_by_the_plan_verifier() -> None:
    """A product is written over its own operand."""
    planted = Planted(Gated())
    honest = planted.program()
    planted.edit("@second.weight, @second.bias) -> (@v1)", "@second.weight, @second.bias) -> (@v0)")
    with pytest.raises(PlanError, match=r"launch 1 \(gemm_epilogue\): output 0 is the memory of input 0"):
        planted.subject()  # the runtime refuses it on its own, too
    certificate = examined(planted.subject(slots=honest.slots, launches=honest.launches))
    assert failing(certificate) == ["plan", "binding"]
    message, culprit = found(certificate, "plan")
    assert culprit == "k1 gemm_epilogue"
    assert "@k1 reads @v0 and writes @v0 in the same memory, which gemm_epilogue cannot do" in message


def test_a_wrong_work_in_place_is_found_by_the_reference() -> None:
    """The product h · lin(h) is written over h, which backward still reads: a valid plan of another step."""
    planted = Planted(Gated())
    text = str(planted.stages["buffers"])
    match = re.search(r" mul\(@(v\d+), @v\d+\) -> \(@(v\d+)\)", text)
    assert match is not None
    source, target = match.groups()
    text = re.sub(rf"    plan.slot @{target} .*\n", "", text)
    planted.replace("buffers", re.sub(rf"@{target}\b", f"@{source}", text))
    planted.redo("plan")
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    message, culprit = found(certificate, "reference")
    assert culprit.split()[1] in ("mul", "gemm", "gemm_epilogue", "mse_grad")
    assert "a launch differs from its op in stage 'kernel'" in message


@pytest.mark.parametrize("wrong", ["gelu_tanh", "silu"])
def test_a_wrong_epilogue_is_found_by_the_reference(wrong: str) -> None:
    planted = Planted()
    planted.edit('act = "gelu", bias', f'act = "{wrong}", bias')
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    message, culprit = found(certificate, "reference")
    assert culprit == "k0 gemm_epilogue"
    assert "the plan gives it other operands or attributes" in message


def test_a_wrong_fusion_is_found_at_its_stage() -> None:
    planted = Planted()
    planted.edit('act = "gelu", bias', 'act = "gelu_tanh", bias', stage="fused")
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
    corrections[1:] = [(arena, offset, dtype, (8,)) for arena, offset, dtype, _ in corrections[1:]]
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
    planted.edit("@lr, @beta1, @beta2, @eps, @weight_decay", "@lr, @beta1, @beta2, @weight_decay, @eps")
    certificate = examined(planted.subject())
    assert failing(certificate) == ["reference"]
    assert found(certificate, "reference")[1] == "k8 adam_step"


# ---- what happens on the way ----


def test_after_an_exception_the_memory_is_back() -> None:
    subject = Planted().subject()
    subject.executor.reset()
    before = [subject.bytes_of(name) for name in subject.kept]
    with pytest.raises(StateError, match="call capture first"):
        certify(subject, 3)
    assert [subject.bytes_of(name) for name in subject.kept] == before


class Interrupting:
    """An executor during whose n-th run Ctrl-C is pressed."""

    def __init__(self, executor: _C.Executor, n: int):
        self.executor, self.left = executor, n

    def run(self, stream: int = 0) -> None:
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)
        self.executor.run(stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executor, name)


@pytest.mark.parametrize("n", [1, 4, 7, 8])
def test_ctrl_c_is_obeyed_when_the_memory_is_back(n: int) -> None:
    subject = Planted().subject()
    before = [subject.bytes_of(name) for name in subject.kept]
    with pytest.raises(KeyboardInterrupt):
        certify(dataclasses.replace(subject, executor=Interrupting(subject.executor, n)), 3)
    assert [subject.bytes_of(name) for name in subject.kept] == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_may_ask_for_it() -> None:
    subject, results = Planted().subject(), list[Certificate]()
    thread = threading.Thread(target=lambda: results.append(certify(subject, 2)))
    thread.start()
    thread.join(timeout=120)
    assert results[0].equal

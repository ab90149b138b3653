"""Which kernels run is text: their ids are chosen by a pass, stand in the plan, may be edited, and are recorded as they run.

The model is a two-layer perceptron under Adam, as in the README.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
import torch
from models import mse, regression, to_device
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import _C
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.errors import AicfError
from aicf_mlir.frontend import trace
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.nn import Linear, ReLU, Sequential
from aicf_mlir.optim import Adam
from aicf_mlir.runtime.program import load_program
from aicf_mlir.stages import Snapshots, run_stages
from aicf_mlir.text.parsing import make_context, parse_module

B, D = 4, 8


def model() -> Sequential:
    torch.manual_seed(0)
    return Sequential(Linear(D, D), ReLU(), Linear(D, D))


def stages(target: str, options: Mapping[str, str] | None = None) -> Snapshots:
    """Every stage of the train step for `target`, whether such a device is here or not."""
    net, snapshots = model(), Snapshots()
    traced = trace(net, mse, regression(B, D), optimizer=Adam(net))
    run_stages(traced.module, make_context(), target=target, after_each=snapshots, options=options)
    return snapshots


def target_of(device: str) -> str:
    return "cpu" if device == "cpu" else _C.target_of("cuda:0")


def kernel_ids(module: ModuleOp) -> list[str]:
    """The ids that select-kernels wrote, in order."""
    return [op.kernel_id.data for op in module.walk() if isinstance(op, KernelOp) and op.kernel_id]


def planned_ids(plan: ModuleOp) -> list[str]:
    """The ids that stand in a plan, in order."""
    return [launch.kernel_id.data for launch in find_program(plan).launches]


def run(plan: ModuleOp, device: str) -> list[str]:
    """Run a plan once, on zeros, and say which kernels ran."""
    program, place = load_program(plan), "cpu" if device == "cpu" else "cuda:0"
    arenas = {name: _C.Arena(place, size) for name, size in program.arenas.items()}
    executor = _C.Executor(place, arenas, program.launches)
    executor.run()
    return executor.trace()


UPDATE = ["advance", "adam_step"]
OPS = {
    "cpu": ["gemm_epilogue"] * 2 + ["mse_loss", "mse_grad"] + ["gemm_epilogue"] * 3 + UPDATE,
    "sm_90": ["horizontal", "gemm_map", "gemm_map", "horizontal"],
}
"""The launches; on a GPU products write updates and the gradient of the loss, and what they leave time for is beside them."""

PLANNED = {
    "cpu": {"gemm_epilogue": "gemm_epilogue_cpu_blas", "adam_step": "adam_step_cpu"},
    "sm_90": {},
}
"""The kernels of two of the ops, by target."""


@pytest.mark.parametrize("target", PLANNED)
def test_every_launch_gets_a_kernel_id_of_its_op_and_target(target: str) -> None:
    """Planning for sm_90 needs no GPU. A generated kernel is called after its op, and a hash of what it computes."""
    ids = kernel_ids(stages(target)["kernel"])
    variants = {variant["name"]: variant for variant in _C.kernel_variants()}
    generated = {
        kernel: found[1]
        for kernel in ids
        if (found := re.fullmatch(r"gen_(\w+)_[0-9a-f]{12}(\[.*\])?", kernel))
    }
    ops = {kernel: generated.get(kernel) or variants[kernel]["op"] for kernel in ids}
    assert [ops[kernel] for kernel in ids] == OPS[target]
    prebuilt = [kernel for kernel in ids if kernel not in generated]
    assert {variants[kernel]["device"] for kernel in prebuilt} == ({"cpu"} if target == "cpu" else set())
    chosen = {ops[kernel]: kernel for kernel in ids}
    assert chosen == chosen | PLANNED[target]


def test_fusion_is_seen_in_the_ids() -> None:
    """Bias, activation and their gradients go into the gemms, four updates into one launch."""
    snapshots = stages("cpu")
    unfused = snapshots["lowered"].clone()
    run_stages(unfused, make_context(), first="kernel", until="kernel")
    apart, together = kernel_ids(unfused), kernel_ids(snapshots["kernel"])
    for kernel in ("bias_add_cpu", "relu_cpu", "relu_bwd_cpu", "reduce_sum_cpu"):
        assert kernel in apart and kernel not in together, kernel
    assert "gemm_epilogue_cpu_blas" not in apart and together.count("gemm_epilogue_cpu_blas") == 5
    assert (apart.count("adam_step_cpu"), together.count("adam_step_cpu")) == (4, 1)


def test_what_was_planned_is_what_ran(device: str) -> None:
    """Eager and in a replay, in order, as the runtime recorded it and not as the plan says."""
    net = model().to(device)
    net.compile(optimizer=Adam(net), B=B, D=D, device=device, dtype=torch.float32)
    batch = to_device(regression(B, D), device)
    planned = net.compiled_step.planned_kernels()
    assert planned == planned_ids(stages(target_of(device))["plan"])
    net.train_step(batch)
    assert net.compiled_step.executed_kernels() == planned
    net.capture(batch)
    net.replay(2, sync=True)
    assert net.compiled_step.executed_kernels() == planned


KEPT = {"apply-optimizer": "keep-grads"}
"""With gradients that are kept the launches of a GPU too are some of the registry."""
OTHER = {"cpu": "gemm_epilogue_cpu_plain", "cuda": "gemm_epilogue_f32_naive"}
"""A kernel that select-kernels did not take, by device."""


def test_an_id_edited_in_the_plan_is_the_one_that_runs(device: str) -> None:
    text = str(stages(target_of(device), KEPT)["plan"])
    edited = parse_module(re.sub(r'@k0 "\w+"', f'@k0 "{OTHER[device]}"', text))
    verify_module(edited)
    ids = run(edited, device)
    assert ids[0] == OTHER[device]
    assert ids[1:] == run(parse_module(text), device)[1:]


def test_an_id_edited_in_the_kernel_text_is_kept_by_the_pipeline(device: str) -> None:
    """select-kernels fills in what is missing; an id that is there is an order."""
    target = target_of(device)
    snapshots = stages(target, KEPT)
    first = kernel_ids(snapshots["kernel"])[0]
    edited = parse_module(str(snapshots["kernel"]).replace(f'id "{first}"', f'id "{OTHER[device]}"', 1))
    run_stages(edited, make_context(), first="kernel", target=target)
    assert run(edited, device)[:2] == [OTHER[device], planned_ids(snapshots["plan"])[1]]


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("adam_step_cpu", "kernel 'adam_step_cpu' runs adam_step; gemm_epilogue has"),
        ("gemm_epilogue_f16_tc", "kernel 'gemm_epilogue_f16_tc' cannot run .* on cpu: runs on cuda"),
        ("gemm_epilogue_fast", "no kernel is called 'gemm_epilogue_fast'"),
    ],
)
def test_an_id_that_cannot_run_the_launch_is_refused(kernel: str, reason: str) -> None:
    """Never replaced by another: the message names launch, id and reason."""
    plan = re.sub(r'@k1 "\w+"', f'@k1 "{kernel}"', str(stages("cpu")["plan"]))
    with pytest.raises(AicfError, match=rf"@k1.*{reason}"):
        run(parse_module(plan), "cpu")

"""Locks of whole plans, whose launches are not all those that kernels were selected for; and of several plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from models import classification, cross_entropy, regression
from test_tuning import BATCH, compiled, model_and_optimizer
from tool_calls import called
from torch import nn

from aicf_mlir import CompiledTrainStep, LockError, SelectionError, compile_train_step, trace
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.dialects.plan.kernels import generated_kernels
from aicf_mlir.stages import Snapshots, make_context, run_stages
from aicf_mlir.tools import aicf_tune
from aicf_mlir.tuning.lock import Choice, Lock
from aicf_mlir.tuning.obeyed import check_module, lock_options, prebuilt_uses, text_of


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "bf16"},
        {"precision": "f16"},
        {"ema": 0.9, "clip_grad_norm": 1.0},
        {"check_finite": True},
    ],
)
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.Adagrad])
def test_any_step_takes_the_lock_of_its_plan(
    tmp_path: Path, options: Any, optimizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """In bf16 and f16 the launches of the plan are not those that kernels were selected for: updates write casts too."""

    def made(**more: Any) -> CompiledTrainStep:
        model, _ = model_and_optimizer()
        return compile_train_step(
            model, optimizer(model.parameters()), example=BATCH, device="cpu", **options, **more
        )

    plan, lock = tmp_path / "step.mlir", tmp_path / "aicf.lock"
    plan.write_text(made().ir("plan"))
    assert called(aicf_tune.main, [str(plan), "-o", str(lock)], capsys) == (0, "", "")
    rows = Lock.read(lock)
    step = made(lock=lock)
    step.train_step(BATCH)
    assert step.executed_kernels() == step.planned_kernels()
    assert set(step.planned_kernels()) <= {row.kernel for row in rows.rows.values()} | rows.generated
    uses = [use for use in rows.rows if use.startswith("adam_step(")]
    if uses and options.get("precision") == "bf16":
        assert "copy: " in uses[0]
        lock.write_text(lock.read_text().replace('"adam_step_cpu"', '"adam_step_cuda"'))
        with pytest.raises(SelectionError, match=r"adam_step_cuda.*; the kernels are those of the lock"):
            made(lock=lock)
        lock.write_text(replace(rows, rows={k: v for k, v in rows.rows.items() if k not in uses}).text)
        with pytest.raises(LockError, match=r"has no kernel for 1 op of this step:\n  \+ adam_step"):
            made(lock=lock)


def test_one_lock_serves_several_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short, open_step = regression(48, 64), compiled(further_sizes=1)
    plans, locked = [tmp_path / "step.mlir", tmp_path / "short.mlir"], tmp_path / "aicf.lock"
    plans[0].write_text(compiled().ir("plan"))
    open_step.train_step(short)
    plans[1].write_text(open_step.ir("plan"))
    assert called(aicf_tune.main, [*map(str, plans), "-o", str(locked)], capsys) == (0, "", "")
    step = compiled(lock=locked, further_sizes=1)
    for batch in (BATCH, short):
        step.train_step(batch)
        assert set(step.executed_kernels()) <= {
            *(row.kernel for row in Lock.read(locked).rows.values()),
            *Lock.read(locked).generated,
        }
    wrong = plans[1]
    wrong.write_text(wrong.read_text().replace('target "cpu"', 'target "sm_90"'))
    code, _, err = called(aicf_tune.main, [*map(str, plans)], capsys)
    assert code == 1 and err.startswith(f"{wrong}:")
    wrong.write_text("func.func @f(")
    code, _, err = called(aicf_tune.main, [*map(str, plans)], capsys)
    assert code == 1 and err.startswith(f"{wrong}:1:")


def test_a_plan_for_a_gpu_is_locked_as_it_is(tmp_path: Path) -> None:
    """Products that read ahead are other kernels than before, and copies of bufferize are new; no GPU is needed to see."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 5))
    traced = trace(model, cross_entropy, classification(5), optimizer=torch.optim.Adam(model.parameters()))

    def planned(**options: str) -> Snapshots:
        found = Snapshots()
        run_stages(traced.module.clone(), make_context(), target="sm_90", after_each=found, options=options)
        return found

    stages = planned()
    program = find_program(stages["plan"])
    selected = {
        op.kernel_id.data for op in stages["kernel"].walk() if isinstance(op, KernelOp) and op.kernel_id
    }
    assert not set(generated_kernels(program)) <= selected, "the case that this is about"
    rows = {
        text_of(use): Choice(text_of(use), launch.kernel_id.data)
        for launch, use in prebuilt_uses(program).items()
    }
    lock = Lock({"target": "sm_90"}, rows, frozenset(generated_kernels(program)))
    check_module(stages["plan"], lock)
    path = tmp_path / "gpu.lock"
    path.write_text(lock.text)
    assert planned(**lock_options(str(path))).text("plan") == stages.text("plan")
    path.write_text(replace(lock, generated=frozenset(selected)).text)
    with pytest.raises(LockError, match=r"has no kernel for .*\n  \+ gen_"):
        planned(**lock_options(str(path)))
    (use, *_), (kernel, *_) = rows, lock.generated
    with pytest.raises(LockError, match="has no kernel for 1 op"):
        check_module(stages["plan"], replace(lock, generated=lock.generated - {kernel}))
    with pytest.raises(LockError, match="has no kernel for 1 op"):
        check_module(stages["plan"], replace(lock, rows={k: row for k, row in rows.items() if k != use}))
    with pytest.raises(SelectionError, match=f"runs {rows[use].kernel} and not slow_cuda"):
        check_module(stages["plan"], replace(lock, rows={**rows, use: Choice(use, "slow_cuda")}))

"""Locks in lists of passes: later passes take that of select-kernels, and what comes out is held against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from test_tuning import compiled
from tool_calls import called
from xdsl.parser import Parser

from aicf_mlir import LockError, SelectionError
from aicf_mlir.passes.pipeline import available_passes
from aicf_mlir.passes.select_kernels import SelectKernelsPass
from aicf_mlir.text.parsing import make_context
from aicf_mlir.tools import aicf_opt, aicf_tune
from aicf_mlir.tuning.lock import Choice, Lock
from aicf_mlir.tuning.obeyed import FIRST, LATER

PRECISIONS = (None, "bf16")
"""In bf16 the updates of the finished plan write casts, which those that select-kernels sees do not."""
SQUARED = """func.func @f(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %y = kernel.gemm a(%x) b(%x) KERNEL : tensor<8x8xf32>
  func.return %y : tensor<8x8xf32>
}
"""

Rows = Mapping[str, Choice]


class Files:
    """A step before its first pass, and the lock of its plan by `compile_train_step`."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], precision: str | None = None):
        self.folder, self.capsys, self.precision = folder, capsys, precision
        self.step, self.plan, self.lock = (folder / name for name in ("nn.mlir", "plan.mlir", "aicf.lock"))
        step = compiled(precision=precision)
        self.step.write_text(step.ir("nn"))
        self.plan.write_text(step.ir("plan"))
        self.tune(self.plan)

    def tune(self, source: Path) -> None:
        assert called(aicf_tune.main, [str(source), "-o", str(self.lock)], self.capsys) == (0, "", "")

    def edit(self, change: Callable[[Rows], Rows]) -> None:
        """Other rows."""
        lock = Lock.read(self.lock)
        self.lock.write_text(replace(lock, rows=change(lock.rows)).text)

    def opt(self, *arguments: str) -> tuple[int, str, str]:
        """What aicf-opt makes of the step."""
        return called(aicf_opt.main, [*arguments, str(self.step)], self.capsys)

    def all_ways(self) -> list[tuple[str, ...]]:
        """The ways to ask for the plan with the lock: by the stage, by flags, by a list, and by both after each other."""
        taken = f'lock="{self.lock}"'
        behind = ("bufferize", "persistent-weights", "prefetch", "plan-memory")
        return [
            ("--stage", "plan", "--lock", str(self.lock)),
            ("--stage", "fused", f"-pelide-copies,select-kernels{{{taken}}},{','.join(behind)}"),
            (
                "--stage",
                "fused",
                "--elide-copies",
                f"--select-kernels={taken}",
                *(f"--{flag}" for flag in behind),
            ),
            ("--stage", "kernel", "--lock", str(self.lock), *(f"--{flag}" for flag in behind)),
        ]


def with_other_choices(rows: Rows) -> Rows:
    """Each product of the CPU by the way that was not the fastest."""
    swapped = {"[packed]": "[blocks]", "[blocks]": "[packed]"}

    def other(kernel: str) -> str:
        name, bracket, choice = kernel.partition("[")
        return name + swapped.get(bracket + choice, bracket + choice)

    return {use: replace(row, kernel=other(row.kernel)) for use, row in rows.items()}


def without(start: str) -> Callable[[Rows], Rows]:
    return lambda rows: {use: row for use, row in rows.items() if not use.startswith(start)}


def with_kernel(start: str, kernel: str) -> Callable[[Rows], Rows]:
    return lambda rows: {
        use: replace(row, kernel=kernel) if use.startswith(start) else row for use, row in rows.items()
    }


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys, "bf16")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_pipeline_with_a_lock_makes_the_plan_of_a_compiled_step(
    precision: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = Files(tmp_path, capsys, precision)
    files.edit(with_other_choices)
    wanted = f"{compiled(precision=precision, lock=files.lock).ir('plan').rstrip()}\n"
    assert (wanted == files.plan.read_text()) == (precision is not None), "products of f32 have choices"
    for way in files.all_ways():
        assert files.opt(*way) == (0, wanted, "")


@pytest.mark.parametrize("start", ["adam_step(", "gemm_epilogue(", "copy("])
def test_a_launch_of_the_finished_plan_without_a_row_is_refused(files: Files, start: str) -> None:
    files.edit(without(start))
    for way in files.all_ways():
        code, out, err = files.opt(*way)
        assert (code, out) == (1, "")
        assert f"{files.lock} has no kernel for " in err
        assert f"\n  + {start}" in err
        assert "above plan level" not in err


def test_a_generated_kernel_without_a_row_is_refused(files: Files) -> None:
    lock = Lock.read(files.lock)
    assert lock.generated
    files.lock.write_text(replace(lock, generated=frozenset()).text)
    for way in files.all_ways():
        code, out, err = files.opt(*way)
        assert (code, out) == (1, "") and "\n  + gen_" in err


def test_a_kernel_that_cannot_run_is_refused(files: Files) -> None:
    files.edit(with_kernel("adam_step(", "relu_cpu"))
    for way in files.all_ways():
        code, out, err = files.opt(*way)
        assert (code, out) == (1, "") and "kernel 'relu_cpu' runs relu" in err


def test_a_plan_that_does_not_get_finished_is_no_step_of_its_lock(files: Files) -> None:
    code, out, err = files.opt("--stage", "kernel", "--lock", str(files.lock))
    assert (code, out) == (1, "")
    assert "has no kernel for 1 op of this step:\n  + adam_step(" in err
    assert (
        "note: above plan level, where later passes still change launches: a lock is made of finished" in err
    )


def test_the_lock_of_a_stage_needs_a_stage_that_selects(files: Files) -> None:
    for arguments in (("--stage", "step"), ("--cse",), ()):
        code, out, err = files.opt(*arguments, "--lock", str(files.lock))
        assert (code, out) == (2, "")
        assert err == (
            "aicf-opt: error: --lock is for --stage kernel, buffers or plan, and no stage here selects kernels;"
            " a pass takes it as select-kernels{lock=…}\n"
        )


def test_a_lock_that_is_none_or_of_another_target_is_refused(files: Files) -> None:
    code, _, err = files.opt("--stage", "plan", "--lock", str(files.folder / "missing"))
    assert code == 1 and "cannot read the lock" in err
    code, _, err = files.opt("--stage", "plan", "--lock", str(files.lock), "--target", "sm_90")
    assert code == 1 and "was made for target cpu, and this is sm_90" in err


@pytest.fixture
def squared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    """One product, whose lock has the choice that was not the fastest."""
    files = Files(tmp_path, capsys)
    files.step.write_text(SQUARED.replace("KERNEL", ""))
    files.tune(files.step)
    files.edit(with_kernel("gemm(", "gemm_cpu_plain"))
    return files


def test_a_kernel_that_the_text_names_is_not_kept_against_the_lock(squared: Files) -> None:
    taken = f'--select-kernels=lock="{squared.lock}"'
    code, out, _ = squared.opt(taken)
    assert code == 0 and 'id "gemm_cpu_plain"' in out
    squared.step.write_text(SQUARED.replace("KERNEL", 'id "gemm_cpu_blas"'))
    for further in ((), ("--bufferize", "--plan-memory")):
        code, out, err = squared.opt(taken, *further)
        assert (code, out) == (1, "")
        assert "b: f32[8, 8]) -> (out: f32[8, 8]) runs gemm_cpu_blas and not gemm_cpu_plain" in err


def test_a_plan_with_empty_ids_takes_a_lock(squared: Files) -> None:
    taken = f'--select-kernels=lock="{squared.lock}"'
    _, plan, _ = squared.opt(taken, "--bufferize", "--plan-memory")
    assert '"gemm_cpu_plain"' in plan
    squared.step.write_text(plan.replace('"gemm_cpu_plain"', '""'))
    assert squared.opt(taken) == (0, plan, "")
    squared.edit(without("gemm("))
    code, _, err = squared.opt(taken)
    assert code == 1 and "has no kernel for 1 op of this step:\n  + gemm(" in err
    squared.step.write_text(plan.replace('"gemm_cpu_plain"', '""').replace('target "cpu"', 'target "sm_90"'))
    code, _, err = squared.opt(taken)
    assert code == 1 and "was made for target cpu, and this is sm_90" in err


def test_alone_the_pass_is_strict(squared: Files) -> None:
    """As in xdsl-opt, which knows of no check behind the last pass."""

    def selected(text: str) -> None:
        context = make_context()
        SelectKernelsPass(lock=str(squared.lock)).apply(context, Parser(context, text).parse_module())

    selected(SQUARED.replace("KERNEL", ""))
    with pytest.raises(LockError, match=r"has no kernel for 1 op of this step:\n  \+ gemm"):
        selected(SQUARED.replace("KERNEL", "").replace("8x8", "4x4"))
    with pytest.raises(SelectionError, match="runs gemm_cpu_blas and not gemm_cpu_plain"):
        selected(SQUARED.replace("KERNEL", 'id "gemm_cpu_blas"'))


def test_every_pass_that_takes_a_lock_is_known() -> None:
    takes = [flag for flag, load in available_passes().items() if hasattr(load(), "lock")]
    assert takes == [FIRST, *LATER]

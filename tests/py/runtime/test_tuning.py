"""Locks: measured here, obeyed here, and refused with the difference anywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models import mlp, regression
from oracle import assert_same_bits
from tool_calls import called
from torch import nn

from aicf_mlir import (
    BindError,
    LockError,
    SelectionError,
    compile_eval_step,
    compile_step,
    compile_train_step,
)
from aicf_mlir.ir.registry import Use
from aicf_mlir.tools import aicf_opt, aicf_tune
from aicf_mlir.tuning import measure
from aicf_mlir.tuning.lock import Choice, Lock
from aicf_mlir.tuning.machine import machine_of
from aicf_mlir.tuning.measure import tuned
from aicf_mlir.tuning.obeyed import text_of

SQUARE = ("f32", (64, 64))
PRODUCT = Use.of("gemm", [SQUARE, SQUARE], [SQUARE], {"trans_b": True})
BATCH = regression(64, 64)
RELU = """
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.relu %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
"""


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = mlp(64, 64, 64)
    return model, torch.optim.Adam(model.parameters())


def compiled(**options: Any) -> Any:
    return compile_train_step(*model_and_optimizer(), example=BATCH, device="cpu", **options)


def trained(step: Any, steps: int) -> torch.Tensor:
    """The loss of the last of some steps."""
    return [step.train_step(BATCH) for _ in range(steps)][-1]


@pytest.fixture
def locked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The lock of `compiled()`, as aicf-tune writes it."""
    plan, lock = tmp_path / "step.mlir", tmp_path / "aicf.lock"
    plan.write_text(compiled().ir("plan"))
    assert called(aicf_tune.main, [str(plan), "-o", str(lock)], capsys) == (0, "", "")
    return lock


def choices() -> list[str]:
    """What gemm_cpu_blas can choose for PRODUCT on this machine."""
    return [
        candidate.kernel
        for candidate in measure.candidates(PRODUCT, "cpu")
        if candidate.kernel.startswith("gemm_cpu_blas")
    ]


def test_a_use_is_one_line() -> None:
    assert text_of(PRODUCT) == "gemm(a: f32[64, 64], b: f32[64, 64]) -> (out: f32[64, 64]) {trans_b = true}"
    by_columns = ("f32", (8, 4), (1, 8), 256)
    summed = Use.of("reduce_sum", [by_columns], [("f32", (4,))], {"dims": [0]})
    assert text_of(summed) == "reduce_sum(x: f32[8, 4] by [1, 8]) -> (y: f32[4]) {dims = [0]}"


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    name = 'a "quoted" path\\ü.lock'
    rows = {
        use: Choice(use, "gemm_cpu_blas[blocks]", 1.25, ("gemm_cpu_plain: 9.00 us", 'refused: "why"\n'))
        for use in ("b", "a")
    }
    lock = Lock({"target": "cpu", "device": 'an "Ä"'}, rows, frozenset({"gen_map_1", "gen_map_0"}))
    (tmp_path / name).write_text(lock.text)
    assert Lock.read(tmp_path / name) == lock
    assert lock.text.index('use = "a"') < lock.text.index('use = "b"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version = ", "cannot read the lock"),
        ("version = 2", "expected version = 1, got 2"),
        ("version = 1", r"expected a table \[machine\], got None"),
        ("version = 1\n[machine]", r"expected a target in \[machine\]"),
        ('version = 1\n[machine]\ntarget = "cpu"\n[[ops]]\n', "got the key 'ops'"),
        ('version = 1\nop = 3\n[machine]\ntarget = "cpu"', r"expected tables \[\[op\]\], got 3"),
        ('version = 1\n[machine]\ntarget = "cpu"\n[[op]]\nuse = "a"', "expected a text for kernel of a"),
        ('version = 1\n[machine]\ntarget = "cpu"\n[[op]]\nuse = "a"\nkernel = ""', "expected a text for kernel"),
        (
            'version = 1\n[machine]\ntarget = "cpu"\n' + '[[op]]\nuse = "a"\nkernel = "k"\n' * 2,
            "expected one kernel for each use, got two for a",
        ),
        (
            'version = 1\n[machine]\ntarget = "cpu"\n[[op]]\nuse = "a"\nkernel = "k"\nmicroseconds = "1"',
            "expected a number of microseconds, got 1",
        ),
        ("x = " + 100_000 * "[", "cannot read the lock .*: brackets are nested too deeply"),
        ("version = 1\0", "cannot read the lock .*: NUL character"),
        ('version = 1\ngenerated = [1]\n[machine]\ntarget = "cpu"', "expected a text for generated, got 1"),
    ],
)  # fmt: skip
def test_what_is_no_lock_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.lock"
    path.write_text(text)
    with pytest.raises(LockError, match=message) as refused:
        compiled(lock=path)
    assert str(path) in str(refused.value)
    with pytest.raises(LockError, match="cannot read the lock"):
        compiled(lock=tmp_path / "missing.lock")
    with pytest.raises(LockError, match="cannot read the lock 3"):
        compiled(lock=3)
    with pytest.raises(LockError, match="got a text of several lines; write it to a file first"):
        compiled(lock="version = 1\n" + text)
    with pytest.raises(LockError, match="a lock is given by its path, got an empty one"):
        compiled(lock="")


def test_each_candidate_is_measured_or_says_why_not() -> None:
    lock = tuned([PRODUCT, PRODUCT], ["gen_map_0"], "cpu")
    (row,) = lock.rows.values()
    names = {row.kernel, *(text.partition(": ")[0] for text in row.rejected)}
    assert names == {candidate.kernel for candidate in measure.candidates(PRODUCT, "cpu")}
    assert row.microseconds is not None and row.microseconds > 0
    assert lock.machine == machine_of("cpu") and lock.generated == {"gen_map_0"}


def test_an_op_with_one_kernel_is_not_measured() -> None:
    sums = Use.of("reduce_sum", [SQUARE], [("f32", (64,))], {"dims": [0]})
    assert tuned([sums], (), "cpu").rows[text_of(sums)].microseconds is None


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ({"a": 1.00, "b": 0.99}, "a"),
        ({"a": 1.00, "b": 0.97}, "b"),
        ({"a": 1.10, "b": 1.01, "c": 1.00}, "b"),
    ],
)
def test_what_is_preferred_stays_within_the_noise(times: dict[str, float], best: str) -> None:
    assert measure.preferred(times) == best


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("strides", [(8, 1), (1, 8), (16, 1), (0, 1)])
def test_operands_of_any_type_and_layout_are_measured(element: str, strides: tuple[int, int]) -> None:
    given = (element, (8, 8), strides, 256)
    dense = (element, (8, 8))
    use = Use.of("gemm", [given, dense], [dense], {}) if strides[0] else Use.of("copy", [given], [dense], {})
    assert tuned([use], (), "cpu").rows[text_of(use)].kernel


def test_a_lock_is_obeyed(locked: Path) -> None:
    lock = Lock.read(locked)
    step = compiled(lock=locked)
    named = {row.kernel for row in lock.rows.values()} | lock.generated
    assert set(step.planned_kernels()) <= named
    step.train_step(BATCH)
    assert step.executed_kernels() == step.planned_kernels()
    assert step.capture(BATCH, verify="bitwise").equal
    replayed, eager = compiled(lock=locked), compiled(lock=locked)
    replayed.train_step(BATCH)
    replayed.capture(BATCH)
    assert_same_bits({"loss": trained(eager, 4)}, {"loss": replayed.replay(3)})


def test_an_edited_choice_is_obeyed(locked: Path) -> None:
    """Each choice of each product in turn; what is trained stays within rounding."""
    wanted = trained(compiled(), 3)
    assert choices()
    for choice in choices():
        text = locked.read_text()
        own = text.replace("gemm_epilogue_cpu_blas[packed]", "gemm_epilogue_cpu_blas").replace(
            "gemm_epilogue_cpu_blas[blocks]", "gemm_epilogue_cpu_blas"
        )
        name = choice.replace("gemm_cpu_blas", "gemm_epilogue_cpu_blas")
        edited = locked.with_name("edited.lock")
        edited.write_text(own.replace('kernel = "gemm_epilogue_cpu_blas"', f'kernel = "{name}"'))
        step = compiled(lock=edited)
        assert name in step.planned_kernels()
        torch.testing.assert_close(trained(step, 3), wanted)
        assert step.executed_kernels() == step.planned_kernels()


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        ("gemm_fast", SelectionError, "no kernel is called 'gemm_fast'"),
        ("relu_cpu", SelectionError, "kernel 'relu_cpu' runs relu"),
        ("gemm_epilogue_f32_naive", SelectionError, "runs on cuda"),
        ("gemm_cpu_blas[", SelectionError, r"no kernel is called 'gemm_cpu_blas\['"),
        ("gemm_cpu_blas[tiled]", SelectionError, r"cannot choose \[tiled\] for these operands; it can choose \["),
        ("gemm_cpu_plain[fast]", SelectionError, r"cannot choose \[fast\] for these operands; it runs as gemm_cpu_plain"),
    ],
)  # fmt: skip
def test_an_edited_kernel_that_cannot_run_is_refused(
    locked: Path, kernel: str, error: type[Exception], message: str
) -> None:
    kernel = kernel.replace("gemm_cpu", "gemm_epilogue_cpu")
    message = message.replace("gemm_cpu", "gemm_epilogue_cpu")
    lines = locked.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith('use = "gemm_epilogue'))
    lines[at + 1] = f'kernel = "{kernel}"'
    locked.write_text("\n".join(lines))
    model, optimizer = model_and_optimizer()
    places = [p.data_ptr() for p in model.parameters()]
    with pytest.raises(error, match=message) as refused:
        compile_train_step(model, optimizer, example=BATCH, device="cpu", lock=locked)
    assert str(refused.value).endswith(f"; the kernels are those of the lock {locked}")
    assert [p.data_ptr() for p in model.parameters()] == places


def test_a_step_that_was_not_locked_is_refused_with_what_is_missing(locked: Path) -> None:
    model, optimizer = model_and_optimizer()
    with pytest.raises(
        LockError, match=r"aicf.lock has no kernel for .* of this step:\n  \+ gemm"
    ) as refused:
        compile_train_step(model, optimizer, example=regression(32, 64), device="cpu", lock=locked)
    assert "f32[32, 64]" in str(refused.value) and "lock it again" in str(refused.value)
    with pytest.raises(LockError, match=r"\+ gen_"):
        compile_train_step(
            model,
            optimizer,
            example=BATCH,
            device="cpu",
            lock=locked,
            loss_fn=lambda model, batch: ((model(batch["x"]) - batch["t"]).abs().exp() * 0.5).mean(),
        )


def test_a_further_size_needs_its_own_rows(locked: Path) -> None:
    step = compiled(lock=locked, further_sizes=1)
    step.train_step(BATCH)
    before = step.snapshot()
    with pytest.raises(LockError, match="has no kernel for"):
        step.train_step(regression(48, 64))
    step.restore(before)
    step.train_step(BATCH)


def test_a_lock_may_begin_with_a_mark_of_its_encoding(locked: Path) -> None:
    locked.write_text(locked.read_text(), encoding="utf-8-sig")
    compiled(lock=locked)


def test_nothing_is_measured_for_a_file_that_cannot_be_written(
    locked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: object) -> Lock:
        raise NotImplementedError

    monkeypatch.setattr(aicf_tune, "tuned", measured)
    for output in (locked.parent, locked.parent / "nowhere" / "aicf.lock"):
        code, _, err = called(aicf_tune.main, [str(locked.with_name("step.mlir")), "-o", str(output)], capsys)
        assert code == 1 and err.startswith(f"aicf-tune: error: {output}: ")
    assert {path.name for path in locked.parent.iterdir()} == {"step.mlir", "aicf.lock"}


def test_another_machine_is_refused_with_the_difference(locked: Path) -> None:
    here = machine_of("cpu")
    text = locked.read_text().replace(here["device"], "an abacus")
    locked.write_text(text.replace(f'build = "{here["build"]}"\n', ""))
    with pytest.raises(LockError, match="was made on another machine") as refused:
        compiled(lock=locked)
    assert '- device = "an abacus"' in str(refused.value)
    assert f'+ device = "{here["device"]}"' in str(refused.value)
    assert '- build = "nothing"' in str(refused.value)
    assert "libraries" not in str(refused.value)


def test_another_target_is_refused(locked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = locked.with_name("step.mlir")
    source.write_text("func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %y = kernel.relu x(%x) : tensor<4xf32>\n"
                      "  func.return %y : tensor<4xf32>\n}\n")  # fmt: skip
    given = f'select-kernels{{target=sm_90 lock="{locked}"}}'
    code, _, err = called(aicf_opt.main, ["-p", given, str(source)], capsys)
    assert code == 1 and "was made for target cpu, and this is sm_90" in err


def test_a_plan_names_its_kernels_itself(locked: Path) -> None:
    with pytest.raises(BindError, match="got lock= and plan=: a plan names its kernels itself"):
        compiled(lock=locked, plan=locked.with_name("step.mlir"))


def test_a_path_may_hold_any_character(locked: Path) -> None:
    odd = locked.with_name('a "b" {c=d},\\e é.lock')
    odd.write_text(locked.read_text())
    assert compiled(lock=odd).planned_kernels() == compiled(lock=locked).planned_kernels()


def test_a_lock_that_is_gone_or_edited_later_is_seen_when_the_step_is_compiled_again(locked: Path) -> None:
    step = compiled(lock=locked)
    step.train_step(BATCH)
    locked.unlink()
    step.train_step(BATCH)
    with pytest.raises(LockError, match="cannot read the lock"):
        step.recompile()
    step.train_step(BATCH)


def test_evaluation_steps_and_loop_bodies_take_locks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, optimizer = model_and_optimizer()

    def body(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch["x"]), batch["t"])
        loss.backward()
        optimizer.step()
        return loss

    plan, lock = tmp_path / "step.mlir", tmp_path / "aicf.lock"
    makers: list[Any] = [
        lambda **options: compile_eval_step(model, example=BATCH, device="cpu", **options),
        lambda **options: compile_step(body, example=BATCH, device="cpu", **options),
    ]
    for make in makers:
        plan.write_text(make().ir("plan"))
        assert called(aicf_tune.main, [str(plan), "-o", str(lock)], capsys)[0] == 0
        step, named = make(lock=lock), Lock.read(lock)
        step.train_step(BATCH) if make is makers[1] else step.eval_step(BATCH)
        assert {kernel for kernel in step.executed_kernels() if "[" in kernel} == {
            row.kernel for row in named.rows.values() if "[" in row.kernel
        }


def test_the_tool_refuses_what_it_cannot_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "f.mlir"
    source.write_text(RELU)
    code, _, err = called(aicf_tune.main, [str(source), "--target", "sm_9"], capsys)
    assert code == 2 and "there is no target 'sm_9'" in err
    code, out, _ = called(aicf_tune.main, [str(source)], capsys)
    assert code == 0 and 'kernel = "relu_cpu"' in out


def test_the_tool_needs_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "f.mlir"
    source.write_text(RELU)
    code, _, err = called(aicf_tune.main, [str(source), "--target", "sm_121"], capsys)
    assert code == 1 and "sm_121" in err

"""aicf-run: inputs, levels, comparison, steps, devices, and what it refuses."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from models import mlp, mse, regression
from tool_calls import called
from written_optimizers import RIGHT
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import _C, compile_train_step
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.optimizers import EXAMPLES as HYPERPARAMETERS
from aicf_mlir.stages import STAGE_NAMES, run_stages
from aicf_mlir.text.parsing import make_context, parse_module
from aicf_mlir.tools import aicf_opt, aicf_run, function_step, plan_step
from aicf_mlir.tools.compare import Reference, compare, difference
from aicf_mlir.tools.tensors import NamedTensor, random_value

EXAMPLES = Path(__file__).parents[3] / "examples"
MLP, STEP = str(EXAMPLES / "mlp.mlir"), str(EXAMPLES / "train_step.mlir")
TO_PLAN = "lower,select-kernels,bufferize,plan-memory"
TRAIN = "autodiff,apply-optimizer,canonicalize,cse,dce"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """aicf-run in this process: exit code, standard output, standard error."""

    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin.encode())))
        return called(aicf_run.main, arguments, capsys)

    return call


@pytest.mark.parametrize("stage", [name for name in STAGE_NAMES if name != "buffers"])
def test_the_stages_of_a_step_with_an_optimizer_of_its_own_run(run: Run, tmp_path: Path, stage: str) -> None:
    """Before the update is applied it is a private function beside the step."""
    model = mlp(8, 17, 8)
    optimizer = RIGHT["lion"](model.parameters())
    step = compile_train_step(model, optimizer, loss_fn=mse, example=regression(5), device="cpu")
    path = tmp_path / "step.mlir"
    path.write_text(step.ir(stage))
    for options in ((), ("--compare=interp",), ("--replay",)):
        code, out, err = run(str(path), *options)
        assert (code, err) == (0, "")
        assert "loss" in out


def lowered(path: str, passes: str, folder: Path) -> str:
    """`path` after `passes`, as a file."""
    out = str(folder / f"{len(list(folder.iterdir()))}.mlir")
    assert aicf_opt.main([path, "-p", passes, "-o", out]) == 0
    return out


def test_the_levels_of_a_train_step_agree(run: Run, tmp_path: Path) -> None:
    step = lowered(STEP, TRAIN, tmp_path)
    results: list[dict[str, np.ndarray]] = []
    for path in (step, lowered(step, "lower", tmp_path), lowered(step, TO_PLAN, tmp_path)):
        out = str(tmp_path / "out.npz")
        assert run(path, "--steps", "3", "-o", out) == (0, "", "")
        with np.load(out) as archive:
            results.append(dict(archive))
    nn, kernel, plan = results
    assert nn.keys() == kernel.keys() == plan.keys()
    assert {"loss", "step", "0.weight", "0.weight.exp_avg_sq"} <= nn.keys()
    for name, value in nn.items():
        np.testing.assert_allclose(kernel[name], value, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(plan[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("path", [MLP, STEP], ids=["model", "step"])
def test_compare(run: Run, path: str, tmp_path: Path) -> None:
    for file in (path, lowered(path, f"{TRAIN},{TO_PLAN}", tmp_path)):
        code, out, err = run(file, "--compare=interp", "--steps", "2")
        assert (code, err) == (0, "")
        assert "DIFFERS" not in out


def test_a_difference_is_exit_code_1(run: Run) -> None:
    code, out, _ = run(MLP, "--compare=interp", "--tolerance", "1e-12")
    assert code == 1
    assert "DIFFERS" in out


def test_replay_equals_eager_bitwise(run: Run, tmp_path: Path) -> None:
    plan = lowered(STEP, f"{TRAIN},{TO_PLAN}", tmp_path)
    eager = run(plan, "--steps", "4")
    assert eager[0] == 0
    assert run(plan, "--steps", "4", "--replay") == eager
    assert run(plan, "--steps", "3") != eager


def test_every_stage_of_a_train_step_runs(run: Run, tmp_path: Path) -> None:
    for stage in STAGE_NAMES[2:]:
        path = str(tmp_path / f"{stage}.mlir")
        assert aicf_opt.main([STEP, "--stage", stage, "-o", path]) == 0
        code, out, err = run(path, "--trace")
        assert (code, err) == (0, "")
        assert out.endswith(" adam_step_cpu\n")


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_every_float_type_runs(run: Run, tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(Path(STEP).read_text().replace("f32", dtype))
    plan = str(tmp_path / "plan.mlir")
    assert aicf_opt.main([str(path), "--stage", "plan", "-o", plan]) == 0
    assert run(plan, "--compare=interp", "--steps", "2")[0] == 0


def test_results_depend_on_the_seed_alone(run: Run) -> None:
    assert run(MLP) == run(MLP, "--seed", "0") != run(MLP, "--seed", "1")


def test_given_values_are_used_and_others_are_random(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, x=np.zeros((64, 256), np.float32))
    _, out, _ = run(MLP, "--inputs", str(path))
    assert out != run(MLP)[1]
    zeros: dict[str, tuple[int, ...]] = {
        "0.weight": (256, 256),
        "2.weight": (256, 256),
        "0.bias": (256,),
        "2.bias": (256,),
    }
    np.savez(
        path,
        x=np.ones((64, 256), np.float32),
        t=np.full((64, 256), 3, np.float32),
        allow_pickle=False,
        **{name: np.zeros(shape, np.float32) for name, shape in zeros.items()},
    )
    code, out, _ = run(MLP, "--inputs", str(path))
    assert code == 0
    assert out.splitlines()[1].split()[3] == "9"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"q": np.zeros(1)}, "no argument is named 'q'; arguments: x, t, 0.weight, 0.bias, 2.weight, 2.bias"),
        ({"x": np.zeros((64, 256))}, "'x' must be float32[64, 256], got float64[64, 256]"),
        ({"x": np.zeros((4, 4), np.float32)}, "'x' must be float32[64, 256], got float32[4, 4]"),
        ({"x": np.array([object()])}, "cannot be read as .npz"),
    ],
)
def test_values_that_do_not_fit(
    run: Run, tmp_path: Path, values: dict[str, np.ndarray], message: str
) -> None:
    path = str(tmp_path / "in.npz")
    np.savez(path, allow_pickle=True, **values)
    for device in ((), ("--device", "cpu")):
        code, out, err = run(MLP, "--inputs", path, *device)
        assert (code, out) == (1, "")
        assert f"{path}: {message}" in err


@pytest.mark.parametrize("data", [None, b"", b"not a zip", b"PK\x03\x04broken", b"\x93NUMPY"])
def test_files_that_hold_no_values(run: Run, tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "in.npz"
    if data is not None:
        path.write_bytes(data)
    code, _, err = run(MLP, "--inputs", str(path))
    assert code == 1
    assert f"{path}: cannot be read as .npz" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func private @f()", "expected one function to run, got 0"),
        ("builtin.module {\n}", "expected one function to run, got 0"),
        (
            "func.func @f(%x: i32) -> i32 {\n  func.return %x : i32\n}",
            "<stdin>:1:1: error: 'func.func' op @f has an argument of type i32; only tensors of static shape",
        ),
        (
            "func.func @f() {\n  func.call @f() : () -> ()\n  func.return\n}",
            "<stdin>:2:3: error: 'func.call' op calls are not run: write the ops of @f in its place",
        ),
        (
            "func.func private @g()\nfunc.func @f() {\n  func.call @g() : () -> ()\n  func.return\n}",
            "<stdin>:3:3: error: 'func.call' op calls are not run: write the ops of @g in its place",
        ),
        (
            "func.func @f() {\n  func.return\n}\nfunc.func @g() {\n  func.return\n}",
            "<stdin>:4:1: error: 'func.func' op expected one function or one plan.program to run, got a second",
        ),
        (
            'func.func @f() {\n  %x = "test.op"() : () -> f32\n  func.return\n}',
            "<stdin>:2:8: error: 'test.op' has no meaning to run; expected ops of nn, optim, kernel",
        ),
        (
            'func.func @f() {\n  %x = "nn.constant"() <{value = 1.0 : f64}> : () -> f32\n  func.return\n}',
            "<stdin>:2:8: error: 'nn.constant'",
        ),
        (
            '"test.op"() : () -> ()',
            "<stdin>:1:1: error: 'test.op' op only a function or a plan.program can run; remove the other",
        ),
        (
            "func.func @f(%x: tensor<4xi3>) {\n  func.return\n}",
            "@f has an argument of type tensor<4xi3>; element type must be one of f32, f64",
        ),
        (
            'plan.program @p target "cpu" {\n  plan.slot @v : memref<4xf32> temp\n}',
            "<stdin>:2:3: error: 'plan.slot' op no launch uses @v; leave it out",
        ),
        (
            'plan.program @p target "sm_999" {\n}',
            "<stdin>:1:1: error: 'plan.program' op there is no target 'sm_999'; there are cpu, sm_75, sm_80",
        ),
        (
            "func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {\n  func.return %x : tensor<?xf32>\n}",
            "only tensors of static shape run",
        ),
        (
            "func.func @f(%x: tensor<1099511627776xf32>) -> tensor<1099511627776xf32> {\n"
            "  func.return %x : tensor<1099511627776xf32>\n}",
            "GiB",
        ),
    ],
)
def test_files_that_cannot_run(run: Run, text: str, message: str) -> None:
    code, out, err = run("-", stdin=text)
    assert (code, out) == (1, "")
    assert message in err


@pytest.mark.skipif(_C.device_count("cuda") > 0, reason="there is a CUDA device here")
def test_without_a_cuda_device(run: Run, tmp_path: Path) -> None:
    code, _, err = run(MLP, "--device", "cuda")
    assert code == 1
    assert "--device cuda: this " in err
    plan = lowered(MLP, "lower,select-kernels{target=sm_90},bufferize,plan-memory", tmp_path)
    code, _, err = run(plan)
    assert code == 1
    assert f"{plan}:2:3: error: 'plan.program' op the plan is for target sm_90; this " in err
    assert "make one for this machine with aicf-opt --stage plan --target cpu" in err


@pytest.mark.parametrize("target", ["cpu", "sm_90", "sm_90+cublaslt"])
def test_targets_are_drawn_from_the_classes_at_every_level(target: str) -> None:
    """Also where the loss is written as loops; else a plan for a GPU was compared with other targets than it had."""
    for stage in ("nn", "step", "kernel"):
        function, _ = lowered_step(stage, target)
        (value,) = (arg for arg in function.body.block.args if arg.name_hint == "t")
        assert function_step.classes_of(value) == 10, stage
    _, module = lowered_step("plan", target)
    assert plan_step.classes_of(find_program(module), "t") == 10


def lowered_step(stage: str, target: str) -> tuple[Any, ModuleOp]:
    """The step of the classifier: its first operation, and all of it."""
    module = parse_module(Path(STEP).read_text())
    run_stages(module, make_context(), until=stage, target=target)
    return next(op for op in module.ops if op.name in ("func.func", "plan.program")), module


@pytest.mark.gpu
@pytest.mark.parametrize("path", [MLP, STEP])
def test_on_a_cuda_device(run: Run, path: str, tmp_path: Path) -> None:
    code, out, err = run(path, "--device", "cuda", "--compare=interp")
    assert (code, err) == (0, "")
    assert "DIFFERS" not in out
    target = _C.target_of("cuda:0")
    passes = f'{TRAIN},lower,fuse,select-kernels{{target="{target}"}},bufferize,plan-memory'
    plan = lowered(path, passes, tmp_path)
    assert run(plan, "--compare=interp", "--steps", "3")[0] == 0
    assert run(plan, "--steps", "3") == run(plan, "--steps", "3", "--replay")
    assert "_f32" in run(plan, "--trace")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps must be at least 1, got 0"),
        (["--seed", "-1"], "--seed must not be negative, got -1"),
        (["--device", "tpu"], "invalid choice: 'tpu'"),
        (["--compare=torch"], "invalid choice: 'torch'"),
        (["--devise", "cpu"], "unknown option '--devise'; did you mean --device?"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(run: Run, arguments: list[str], message: str) -> None:
    code, _, err = run(MLP, *arguments)
    assert code == 2
    assert message in err


def test_random_values_suit_their_role() -> None:
    target = random_value(NamedTensor("t", "input", "i64", (1000,), classes=10), 0)
    assert (target.dtype, target.min(), target.max()) == (np.int64, 0, 9)
    assert random_value(NamedTensor("lr.1", "host_scalar", "f64", ()), 0) == HYPERPARAMETERS["lr"]
    assert np.isnan(random_value(NamedTensor("bc1_pin", "host_scalar", "f64", ()), 0))
    assert not random_value(NamedTensor("w.exp_avg", "state", "f32", (4,)), 0).any()
    weight = random_value(NamedTensor("w", "param", "f32", (256, 64)), 0)
    assert weight.std() == pytest.approx(1 / 8, rel=0.05)
    assert (random_value(NamedTensor("w", "param", "f32", (256, 64)), 0) == weight).all()
    assert (random_value(NamedTensor("v", "param", "f32", (256, 64)), 0) != weight).any()
    assert str(random_value(NamedTensor("x", "input", "bf16", (2, 2)), 0).dtype) == "bfloat16"


def test_special_values_must_be_the_same() -> None:
    one = np.array([1.0, np.nan, np.inf])
    assert difference(one, one.copy()) == 0
    assert difference(one, np.array([1.0, 2.0, np.inf])) == np.inf
    assert difference(np.array([1.0, 2.0, np.inf]), one) == np.inf
    assert difference(one, np.array([1.0, np.nan, -np.inf])) == np.inf
    assert difference(one, one.astype(np.float32)) == np.inf
    assert difference(np.zeros(0), np.zeros(0)) == 0


def test_a_result_on_one_side_only_differs() -> None:
    a, b = ("output", "a"), ("output", "b")
    reference = Reference({b: np.zeros(2)}, {b: np.zeros(2)}, [])
    text, agreed = compare({a: np.zeros(2)}, reference, {a: "a", b: "b"})
    assert not agreed
    assert "missing from the interpreter" in text
    assert "missing from the run" in text

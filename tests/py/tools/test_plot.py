"""aicf-plot as its users meet it: files of any stage, messages and exit codes; and the pictures of the documents."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import children
import pytest
import torch
from mutated_texts import mutated, run_tool
from pictures import EXAMPLE, FOLDER, PICTURES, ROOT, draw
from svg_marks import texts
from tool_calls import called

from aicf_mlir import compile_step
from aicf_mlir.stages import STAGE_NAMES
from aicf_mlir.tools import aicf_opt, aicf_plot, aicf_run

STEP = str(ROOT / EXAMPLE)
Plot = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Plot:
    """aicf-plot in this process: exit code, standard output, standard error; `text` is a file to read."""

    def run(*arguments: str, text: str | None = None) -> tuple[int, str, str]:
        given = list(arguments)
        if text is not None:
            (tmp_path / "in.mlir").write_text(text)
            given.insert(0, str(tmp_path / "in.mlir"))
        return called(aicf_plot.main, given, capsys)

    return run


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_documents_are_current(name: str) -> None:
    picture = (FOLDER / name).read_text()
    assert picture == draw(name), "run python tests/py/tools/pictures.py"
    assert len(picture.encode()) < 60_000
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(f"pictures/{name})" in document.read_text() for document in documents)


def test_the_readme_has_a_picture() -> None:
    assert "](docs/pictures/memory.svg)" in (ROOT / "README.md").read_text()


def test_no_picture_is_left_over() -> None:
    of_examples = {"burgers.svg"}  # by pinn_burgers.py
    assert {path.name for path in FOLDER.iterdir()} == set(PICTURES) | of_examples


@pytest.mark.parametrize("options", [(), ("--timeline",)])
def test_the_same_plan_gives_the_same_bytes(options: tuple[str, ...]) -> None:
    """In processes that order sets differently, from a place that has no part in it."""
    drawn = [
        children.run(
            [sys.executable, "-m", "aicf_mlir.tools.aicf_plot", EXAMPLE, *options],
            cwd=ROOT,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert drawn[0] == drawn[1] == draw("timeline.svg" if options else "memory.svg")


@pytest.mark.parametrize("stage", STAGE_NAMES)
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_a_file_of_any_stage(plot: Plot, tmp_path: Path, stage: str, target: str) -> None:
    """All make the plan of the whole step; from `lowered`, as in aicf-run, without fusion."""
    file = str(tmp_path / "stage.mlir")
    assert aicf_opt.main([STEP, "--stage", stage, "--target", target, "--print-debuginfo", "-o", file]) == 0
    code, picture, err = plot(file, "--target", target)
    assert (code, err) == (0, "")
    if stage != "lowered":
        assert picture == plot(STEP, "--target", target)[1]
    updates_apart = target == "cpu" or stage == "lowered"  # else no gradient of a parameter lies anywhere
    assert ({"dw0", "dw1"} <= set(texts(picture))) == updates_apart
    if stage in ("buffers", "plan"):
        assert plot(file)[1] == picture, "a plan knows its target"


def test_the_body_of_a_loop_at_any_stage(plot: Plot) -> None:
    """Its gradients are taken and its parameters updated where that is still to be done, and once."""
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (first, second)]

    def body(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = torch.zeros(())
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss = second(first(batch["x"])).square().mean()
            loss.backward()
            optimizer.step()
        return loss

    step = compile_step(body, example={"x": torch.randn(8, 4)}, device="cpu")
    drawn = texts(plot("--timeline", text=step.ir("plan"))[1])
    assert any(text.startswith("sgd_step ×") for text in drawn)
    for stage in ("nn", "grad", "step", "kernel", "buffers"):
        code, picture, err = plot("--timeline", text=step.ir(stage))
        assert (code, err) == (0, "")
        assert texts(picture) == drawn, stage


def test_a_function_without_a_loss_is_lowered_as_it_is(plot: Plot) -> None:
    body = "%y = nn.relu %x : tensor<4xf32>\n  func.return %y : tensor<4xf32>"
    text = f"func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {{\n  {body}\n}}"
    code, picture, _ = plot(text=text)
    assert code == 0
    assert "k0 relu" in texts(picture)


PLAN = """\
plan.program @p target "sm_90" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  plan.launch @k0 "relu_f32" relu x(@x) -> y(@y)
}
"""


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("%", (), ":1:1: error: "),
        ("one.two", (), ":1:1: error: operation 'one.two' is of no known dialect"),
        (
            "func.func private @f()",
            (),
            "error: expected one function or one plan.program to draw, got 0 functions",
        ),
        (
            PLAN + PLAN.replace("@p", "@q"),
            (),
            "error: expected a module with one plan.program, got 2",
        ),
        (
            PLAN,
            ("--target", "cpu"),
            ":1:1: error: 'plan.program' op the plan is for target sm_90 and not for cpu: leave --target out\n"
            'plan.program @p target "sm_90" {\n^^^^^^^^^^^^\n',
        ),
        (
            PLAN.replace("relu x(@x)", "relu x(@z)"),
            (),
            ":4:3: error: ",
        ),
    ],
)
def test_a_file_that_cannot_be_drawn_is_exit_code_1(
    plot: Plot, tmp_path: Path, text: str, options: tuple[str, ...], message: str
) -> None:
    out = tmp_path / "out.svg"
    out.write_text("precious")
    code, printed, err = plot(*options, "-o", str(out), text=text)
    assert (code, printed) == (1, "")
    assert message in err
    assert err.count("error: ") == 1
    assert out.read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "aicf-plot: error: the following arguments are required: FILE"),
        ((STEP, "--timelin"), 2, "unknown option '--timelin'; did you mean --timeline"),
        ((STEP, "other.mlir"), 2, "unexpected argument 'other.mlir'; one input file is read"),
        ((STEP, "--target", "sm_7"), 2, "there is no target 'sm_7'; there are cpu, sm_75"),
        ((STEP, "--times", "t.json"), 2, "--times is for --timeline"),
        (
            (STEP, "--timeline", "--times", "t.json"),
            1,
            "t.json: error: cannot be read: No such file or directory",
        ),
        (("missing.mlir",), 1, "missing.mlir: error: cannot be read: No such file or directory"),
        ((STEP, "-o", "missing/out.svg"), 1, "missing/out.svg: No such file or directory"),
    ],
)
def test_a_wrong_command_line(plot: Plot, arguments: tuple[str, ...], code: int, message: str) -> None:
    got, out, err = plot(*arguments)
    assert (got, out) == (code, "")
    assert message in err


@pytest.fixture
def measured(plot: Plot, tmp_path: Path) -> tuple[str, Path]:
    """A plan, and the JSON of its profile."""
    plan, times = str(tmp_path / "step.plan"), tmp_path / "times.json"
    assert aicf_opt.main(["--stage", "plan", STEP, "-o", plan]) == 0
    assert aicf_run.main([plan, "--time=1", f"--time-json={times}"]) == 0
    plot(plan)  # takes what was printed
    return plan, times


def test_launches_are_as_wide_as_they_took(plot: Plot, measured: tuple[str, Path]) -> None:
    plan, times = measured
    code, picture, err = plot(plan, "--timeline", "--times", str(times))
    assert (code, err) == (0, "")
    assert any("µs" in text for text in texts(picture))
    profile = json.loads(times.read_text())
    profile["launches"][2]["seconds"] = 7.0
    times.write_text(json.dumps(profile))
    assert any("7 s" in text for text in texts(plot(plan, "--timeline", "--times", str(times))[1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d["launches"].pop(),
            "times.json: the profile is of another plan: it lacks @k8, adam_step_cpu",
        ),
        (
            lambda d: d["launches"][0].update(launch="@k99"),
            "the profile is of another plan: it lacks @k0, gemm_",
        ),
        (lambda d: d["launches"].append({**d["launches"][0], "launch": "@k9"}), "another plan: it has @k9"),
        (lambda d: d["launches"][8].update(kernel_id="sgd"), "its @k8 ran sgd, here it is adam_step_cpu"),
        (
            lambda d: d["launches"][8].update(bytes=1),
            "the profile is of another plan: its @k8 moved 1 bytes, here",
        ),
        (lambda d: d["launches"][8].update(bytes="1"), "this is no profile of version 1"),
        (
            lambda d: d.update(version=2),
            "times.json: error: this is no profile of version 1, as aicf-run --time-json",
        ),
        (lambda d: d["launches"][0].update(seconds=-1.0), "this is no profile of version 1"),
        (lambda d: d["launches"][0].update(seconds=math.inf), "this is no profile of version 1"),
        (lambda d: d["launches"][0].pop("kernel_id"), "this is no profile of version 1"),
        (lambda d: d.update(launches=5), "this is no profile of version 1"),
    ],
)
def test_times_of_another_plan_are_refused(
    plot: Plot, measured: tuple[str, Path], change: Callable[[Any], object], message: str
) -> None:
    plan, times = measured
    profile = json.loads(times.read_text())
    change(profile)
    times.write_text(json.dumps(profile))
    code, out, err = plot(plan, "--timeline", "--times", str(times))
    assert (code, out) == (1, "")
    assert message in err


def test_the_output_is_written_whole(plot: Plot, tmp_path: Path) -> None:
    out = tmp_path / "memory.svg"
    assert plot(STEP, "-o", str(out)) == (0, "", "")
    assert ElementTree.fromstring(out.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    assert list(tmp_path.iterdir()) == [out]


def test_a_bug_is_said_to_be_one(plot: Plot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(program: object) -> str:
        raise TypeError("oops")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(aicf_plot, "memory_picture", broken)
    code, _, err = plot(STEP)
    assert code == 70
    assert "internal error, TypeError: oops (a bug in AICF" in err
    assert "command, traceback and input are in" in err


def test_control_c(plot: Plot, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(program: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(aicf_plot, "memory_picture", interrupted)
    assert plot(STEP) == (130, "", "")


@pytest.mark.parametrize("seed", range(40))
def test_any_text_is_drawn_or_refused(seed: int) -> None:
    """Programs of every stage with some changes, most of which break a rule."""
    text = mutated(seed)
    for options in ([], ["--timeline"]):
        code, printed, err = run_tool(aicf_plot, ["-", *options], text)
        assert code in (0, 1), err
        assert "internal error" not in err
        if code == 0:
            assert ElementTree.fromstring(printed).tag.endswith("svg")
        else:
            assert err.startswith("<stdin>:")

"""A profile as a table, as JSON and as a trace, of a step and by aicf-run."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tool_calls import called
from torch import nn

from aicf_mlir import BindError, compile_train_step
from aicf_mlir.profiling import LaunchProfile, Profile
from aicf_mlir.profiling.rates import Rates
from aicf_mlir.profiling.table import shown, shown_time
from aicf_mlir.reports.describe import UserLine
from aicf_mlir.tools import aicf_run

EXAMPLES = Path(__file__).parents[3] / "examples"
MLP, STEP = str(EXAMPLES / "mlp.mlir"), str(EXAMPLES / "train_step.mlir")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.encoder(x)))


def profile() -> Profile:
    model = Model()
    batch = {"image": torch.randn(6, 8), "label": torch.arange(6) % 3}
    step = compile_train_step(
        model,
        torch.optim.Adam(model.parameters()),
        loss_fn=lambda model, batch: nn.functional.cross_entropy(model(batch["image"]), batch["label"]),
        example=batch,
        device="cpu",
    )
    return step.profile(3, batch)


def launch(name: str, *samples: float, **given: Any) -> LaunchProfile:
    fields: dict[str, Any] = {
        "op": "gemm",
        "kernel_id": "gemm_cpu",
        "kernel": "gemm_cpu[8x8]",
        "source": (),
        "nbytes": 1000,
        "flops": None,
        "floor": 1e-6,
        **given,
    }
    return LaunchProfile(name, seconds=sum(samples[:2]) / 2, samples=samples, **fields)


MADE = Profile(
    "made",
    "cuda:0",
    None,
    Rates(4e12, {"f16": 9e14, "f32": None}),
    (
        launch("@k0", 2e-6, 4e-6, 3e-6, flops=6000, source=(UserLine("m.py", 12, "0: Linear"),)),
        launch("@k1", 5e-6, 5e-6, 8e-6, op="copy", kernel="copy", source=(UserLine("m.py", 13, "1: ReLU"),)),
        launch("@k2", 0.0, 0.0, 0.0, op="copy"),
    ),
    7e-6,
    (6e-6, 9e-6, 7e-6),
)
"""With times that are known."""


def test_the_table_by_time_and_in_the_order_of_the_plan() -> None:
    assert str(MADE) == MADE.table() == MADE.table("time")
    by_time, by_plan = MADE.table("time").splitlines(), MADE.table("plan").splitlines()
    assert by_time[0].split() == (
        [
            "launch",
            "time",
            "least",
            "%",
            "of",
            "all",
            "bytes",
            "B/s",
            "flop",
            "flop/s",
            "of",
            "floor",
            "kernel",
            "at",
        ]
    )
    assert [line.split()[0] for line in by_time[1:4]] == ["@k1", "@k0", "@k2"]
    assert [line.split()[0] for line in by_plan[1:4]] == ["@k0", "@k1", "@k2"]
    assert by_plan[1].split("  ")[-2:] == ["gemm_cpu[8x8]", "m.py:12, 0: Linear"]
    assert " ".join(by_plan[1].split()[1:10]) == "3 µs 2 µs 37.5% 1 k 333 M"
    assert " ".join(by_plan[1].split()[10:15]) == "6 k 2 G 33%"
    assert by_plan[3].split() == [
        "@k2",
        "0.00",
        "µs",
        "0.00",
        "µs",
        "0.0%",
        "1",
        "k",
        "-",
        "-",
        "-",
        "-",
        "gemm_cpu[8x8]",
    ]
    assert by_plan[5:8] == [
        "      time      % count  op",
        "      5 µs  62.5%     2  copy",
        "      3 µs  37.5%     1  gemm",
    ]
    assert by_plan[9:13] == [
        "      time      % count  layer",
        "      5 µs  62.5%     1  1: ReLU",
        "      3 µs  37.5%     1  0: Linear",
        "   0.00 µs   0.0%     1  the step as a whole",
    ]
    assert by_plan[14:] == [
        "made on cuda:0: 3 launches, the faster half of 3 runs",
        "      8 µs, least     7 µs  the launches, a step with marks between them",
        "      7 µs, least     6 µs  a step without marks",
        "floor: copy 4 TB/s, product of f16 900 Tflop/s, product of f32 no kernel; "
        "over 100 % where caches hold what a launch moves",
    ]


def test_a_step_without_launches() -> None:
    nothing = Profile("nothing", "cpu", 2, Rates(1e9, {}), (), 1e-7, (1e-7,))
    assert nothing.table().splitlines()[-4:] == [
        "nothing on cpu, 2 threads: 0 launches, the faster half of 1 runs",
        "   0.00 µs, least  0.00 µs  the launches, a step with marks between them",
        "   0.10 µs, least  0.10 µs  a step without marks",
        "floor: copy 1 GB/s; over 100 % where caches hold what a launch moves",
    ]
    assert json.loads(nothing.to_json())["launches"] == []
    assert [e["name"] for e in check_trace(json.loads(nothing.to_trace()))] == ["step 0"]


def test_another_order_is_refused() -> None:
    with pytest.raises(BindError, match="by 'time' or in the order of the 'plan', got 'name'"):
        MADE.table("name")


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 "), (12, "12 "), (999, "999 "), (1000, "1 k"), (123456, "123 k"), (2.5e12, "2.5 T")],
)
def test_numbers(number: float, text: str) -> None:
    assert shown(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 µs"),
        (4.2e-8, "0.04 µs"),
        (1.25e-5, "12.5 µs"),
        (9.999e-4, "1000 µs"),
        (0.25, "250 ms"),
        (2.0, "2 s"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert shown_time(seconds) == text


def test_json() -> None:
    """Every key of the schema with its type; and nothing else."""
    found = profile()
    document = json.loads(found.to_json())
    assert list(document) == [
        *("version", "step", "device", "threads", "runs", "rates", "seconds", "least", "marked", "launches")
    ]
    assert (document["version"], document["device"], document["runs"]) == (1, "cpu", 3)
    assert document["rates"]["copy"] > 0 and document["rates"]["products"]["f32"] > 0
    assert document["least"] <= document["seconds"]
    for row, measured in zip(document["launches"], found.launches, strict=True):
        assert list(row) == [
            *(
                "launch",
                "op",
                "kernel_id",
                "kernel",
                "source",
                "seconds",
                "least",
                "bytes",
                "flops",
                "floor",
                "share",
            )
        ]
        assert (row["launch"], row["seconds"], row["bytes"]) == (
            measured.launch,
            measured.seconds,
            measured.nbytes,
        )
        assert row["flops"] is None or isinstance(row["flops"], int)
        assert all(set(source) == {"file", "line", "layer"} for source in row["source"])
    assert document["launches"][0]["source"][0]["layer"] == "encoder: Linear"
    assert json.loads(MADE.to_json())["launches"][2]["share"] is None
    assert json.loads(MADE.to_json())["threads"] is None


def check_trace(document: Any) -> list[dict[str, Any]]:
    """The complete events of a trace that Perfetto opens; fails where one is malformed, or not inside the one around it."""
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    names = {e["name"]: e["args"]["name"] for e in document["traceEvents"] if e["ph"] == "M"}
    assert set(names) == {"process_name", "thread_name"}
    events = [e for e in document["traceEvents"] if e["ph"] == "X"]
    assert len(events) + len(names) == len(document["traceEvents"])
    open_until: list[int] = []
    before = 0
    for event in events:
        assert set(event) == {"ph", "name", "cat", "ts", "dur", "pid", "tid", "args"}
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        begin, duration = round(event["ts"] * 1e3), round(event["dur"] * 1e3)
        assert begin >= before and duration >= 0
        while open_until and open_until[-1] <= begin and (duration or open_until[-1] < begin):
            open_until.pop()
        assert not open_until or begin + duration <= open_until[-1]
        open_until.append(begin + duration)
        before = begin
    return events


def test_the_trace_has_every_run(tmp_path: Path) -> None:
    found, path = profile(), tmp_path / "step.json"
    found.save_trace(path)
    document = json.loads(path.read_text())
    events = check_trace(document)
    assert document["otherData"] == {"step": "step", "device": "cpu", "runs": 3}
    by_kind = {kind: [e for e in events if e["cat"] == kind] for kind in ("step", "layer", "launch")}
    assert [e["name"] for e in by_kind["step"]] == ["step 0", "step 1", "step 2"]
    names = [f"{launch.launch} {launch.op}" for launch in found.launches]
    assert [e["name"] for e in by_kind["launch"]] == names * 3
    assert {"encoder: Linear", "head: Linear"} <= {e["name"] for e in by_kind["layer"]}
    for event, measured in zip(by_kind["launch"], found.launches * 3, strict=False):
        args = event["args"]
        assert set(args) == {"kernel", "kernel_id", "bytes", "flops", "floor_us", "source", "layer"}
        assert (args["kernel_id"], args["bytes"], args["layer"]) == (
            measured.kernel_id,
            measured.nbytes,
            measured.layer,
        )
    first, line = by_kind["launch"][0], Model.forward.__code__.co_firstlineno + 1
    assert first["dur"] == round(found.launches[0].samples[0] * 1e9) / 1e3
    assert first["args"]["source"][0].endswith(f"test_profile_formats.py:{line}")


def test_times_of_the_trace_are_those_of_the_profile() -> None:
    events = check_trace(json.loads(MADE.to_trace()))
    assert [(e["name"], e["ts"], e["dur"]) for e in events[:6]] == [
        ("step 0", 0.0, 7.0),
        ("0: Linear", 0.0, 2.0),
        ("@k0 gemm", 0.0, 2.0),
        ("1: ReLU", 2.0, 5.0),
        ("@k1 copy", 2.0, 5.0),
        ("@k2 copy", 7.0, 0.0),
    ]
    assert [e["ts"] for e in events if e["cat"] == "step"] == [0.0, 7.0, 16.0]


def test_a_name_that_is_no_utf8_is_written(tmp_path: Path) -> None:
    odd = replace(MADE, step="step of \udcff")
    odd.save_json(tmp_path / "times.json")
    odd.save_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "times.json").read_text())["step"] == odd.step
    assert json.loads((tmp_path / "trace.json").read_text())["otherData"]["step"] == odd.step


def test_a_file_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        MADE.save_trace(tmp_path / "nowhere" / "trace.json")
    with pytest.raises(OSError, match="nowhere"):
        MADE.save_json(tmp_path / "nowhere" / "profile.json")


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """aicf-run in this process: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
        return called(aicf_run.main, arguments, capsys)

    yield call


def test_aicf_run_prints_times_after_the_results(run: Run) -> None:
    code, plain, _ = run(STEP, "--device", "cpu")
    assert code == 0
    code, out, err = run("--time=3", STEP)
    assert (code, err) == (0, "")
    assert out.startswith(plain)
    assert "train_step on cpu" in out and "the faster half of 3 runs" in out
    assert "the faster half of 20 runs" in run("--time", MLP)[1]


def test_aicf_run_writes_times(run: Run, tmp_path: Path) -> None:
    trace, table = tmp_path / "trace.json", tmp_path / "times.json"
    code, out, _ = run(STEP, f"--time-trace={trace}", f"--time-json={table}", "--time=2", "--compare=interp")
    assert code == 0 and "the faster half of 2 runs" in out
    document = json.loads(table.read_text())
    assert (document["runs"], document["step"]) == (2, "train_step")
    launches = [e for e in check_trace(json.loads(trace.read_text())) if e["cat"] == "launch"]
    assert len(launches) == 2 * len(document["launches"])
    assert launches[0]["args"]["source"][0].endswith("train_step.mlir:17")
    assert "the faster half of 20 runs" in run(STEP, f"--time-json={table}")[1]


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--time=0", "--time must be at least 1, got 0"),
        ("--time=often", "argument --time: invalid int value: 'often'"),
    ],
)
def test_aicf_run_refuses_counts(run: Run, option: str, why: str) -> None:
    assert run(STEP, option) == (2, "", f"aicf-run: error: {why}\n")


def test_aicf_run_says_what_it_cannot_write(run: Run, tmp_path: Path) -> None:
    for option in ("--time-json", "--time-trace", "-o"):
        code, out, err = run(STEP, "--time=1", f"{option}={tmp_path / 'nowhere' / 'times.json'}")
        assert (code, out) == (1, "") and "nowhere" in err, "before anything is measured"
    assert list(tmp_path.iterdir()) == []


def test_aicf_run_writes_times_to_standard_output_alone(run: Run) -> None:
    code, out, _ = run(STEP, "--time=2", "--time-json=-")
    assert code == 0 and json.loads(out)["runs"] == 2
    code, out, _ = run(STEP, "--time=2", "--time-trace=-")
    assert code == 0 and check_trace(json.loads(out))
    assert run(STEP, "--time-json=-", "--time-trace=-") == (
        2,
        "",
        "aicf-run: error: --time-json=- and --time-trace=- both write to standard output: name a file for one of them\n",
    )


CHECKED = """
func.func @f(%x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"},
             %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<4xf32> {aicf.role = "output", aicf.name = "y"},
        tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  %checked = kernel.check_finite status(%s) x(%x) {code = 3} : (tensor<3xi64>, tensor<4xf32>) -> tensor<3xi64>
  %y = kernel.relu x(%x) : tensor<4xf32>
  func.return %y, %checked : tensor<4xf32>, tensor<3xi64>
}
"""


def test_aicf_run_measures_no_step_whose_check_fails(run: Run, tmp_path: Path) -> None:
    path, inputs = tmp_path / "checked.mlir", tmp_path / "x.npz"
    path.write_text(CHECKED)
    np.savez(inputs, x=np.array([1, np.nan, 2, 3], np.float32))
    assert run(str(path), "--time=2")[0] == 0
    code, out, err = run(str(path), "--time=2", f"--inputs={inputs}")
    assert code == 1 and "faster half" not in out
    assert (
        "@f: a check fails on these values (code 3), so launches are skipped and no time says anything" in err
    )

"""What an installation offers beside the API: `aicf info`, xDSL's own tools, types, and kernels that fit the processor."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import children
import pytest
from xdsl.universe import Universe

import aicf_mlir
from aicf_mlir import _C
from aicf_mlir.codegen import nvrtc
from aicf_mlir.machine import cpu_kernels, hardware, processor
from aicf_mlir.tools import aicf
from aicf_mlir.universe import AICF_UNIVERSE

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
EXAMPLES = [ROOT / "examples" / "mlp.mlir", ROOT / "examples" / "train_step.mlir"]


def printed(*command: str | Path, **options: object) -> str:
    return children.run(command, check=True, cwd=ROOT, **options).stdout


def test_xdsl_finds_the_dialects_and_passes() -> None:
    (found,) = entry_points(group="xdsl.universe", name="aicf")
    assert found.load() is AICF_UNIVERSE
    everything = Universe.get_multiverse()
    assert AICF_UNIVERSE.all_dialects.keys() <= everything.all_dialects.keys()
    assert AICF_UNIVERSE.all_passes.keys() <= everything.all_passes.keys()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_xdsl_opt_runs_the_passes(example: Path) -> None:
    passes = "lower,fuse,select-kernels,bufferize,plan-memory"
    if example.stem == "train_step":
        passes = f"autodiff,apply-optimizer,canonicalize,cse,dce,{passes}"
    theirs = printed(BIN / "xdsl-opt", example, "-p", passes)
    assert theirs == printed(BIN / "xdsl-opt", input=printed(BIN / "aicf-opt", example, "-p", passes))
    assert theirs == printed(BIN / "xdsl-opt", input=theirs)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_xdsl_opt_lowers_and_fuses_a_forward_pass(example: Path) -> None:
    assert "kernel.gemm_epilogue" in printed(BIN / "xdsl-opt", example, "-p", "lower,fuse")


def test_xdsl_opt_passes_options_on() -> None:
    """The spelling that both tools have: xDSL wants a value for every option, also for one that is on or off."""
    passes = (
        "autodiff,apply-optimizer{kind=sgd momentum=true nesterov=true},lower,fuse,"
        'select-kernels{target="sm_90"}'
    )
    theirs = printed(BIN / "xdsl-opt", EXAMPLES[0], "-p", passes)
    assert theirs == printed(BIN / "xdsl-opt", input=printed(BIN / "aicf-opt", EXAMPLES[0], "-p", passes))
    assert "nesterov = true" in theirs and 'aicf.target = "sm_90"' in theirs


def test_info_tells_every_row() -> None:
    lines = printed(BIN / "aicf", "info").splitlines()
    assert [line.split()[0] for line in lines] == list(aicf.ROWS)
    text = dict(line.split(maxsplit=1) for line in lines)
    assert text["aicf"] == aicf_mlir.__version__
    assert re.fullmatch(r"OpenBLAS \d\S+ for \w+, \d+ threads", text["blas"])
    assert text["devices"].startswith("cpu")
    assert text["build"].endswith(f"CUDA kernels: {'yes' if _C.with_cuda else 'no'}")
    assert "unknown" not in "".join(lines)


@pytest.mark.parametrize("missing", ["torch", "xdsl"])
def test_info_works_where_something_is_missing(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\nfrom aicf_mlir.tools import aicf; aicf.main(['info'])"
    )
    lines = printed(sys.executable, "-c", code).splitlines()
    (line,) = [line for line in lines if line.startswith(missing)]
    assert "which does not import: ModuleNotFoundError" in line
    assert len(lines) == len(aicf.ROWS)


def test_info_says_what_a_gpu_would_lack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nvrtc, "available", lambda: False)
    monkeypatch.setattr(_C, "libraries", lambda: [(name, name, 0) for name in ("cublaslt", "cudnn")])
    monkeypatch.setattr(hardware, "_cuda", lambda: None)
    assert aicf.main(["info"]) == 0
    out = capsys.readouterr().out
    said = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert said["nvrtc"] == "none: generated CUDA kernels need nvidia-cuda-nvrtc"
    assert said["cublaslt"] == "none, or not asked for: a GPU runs kernels of AICF in its place"
    assert said["driver"] == "none"


def test_a_row_that_fails_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> str:
        raise OSError("no such library")

    monkeypatch.setitem(aicf.ROWS, "blas", broken)
    assert aicf.main(["info"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^blas +unknown: OSError: no such library$", out, re.MULTILINE)
    assert len(out.splitlines()) == len(aicf.ROWS)


def test_version_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in ((["--version"], 0), ([], 2), (["inform"], 2)):
        with pytest.raises(SystemExit) as left:
            aicf.main(arguments)
        assert left.value.code == code
    out = capsys.readouterr().out
    assert re.search(rf"^aicf {re.escape(aicf_mlir.__version__)}, xDSL 0\.74", out)


def test_the_package_is_typed() -> None:
    assert (Path(aicf_mlir.__file__).parent / "py.typed").exists()


def test_a_wheel_is_portable_and_an_editable_build_is_not() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    assert build["cmake"]["define"]["AICF_NATIVE"]["default"] == "OFF"
    (override,) = [row for row in build["overrides"] if row["if"] == {"state": "editable"}]
    assert override["cmake"]["define"]["AICF_NATIVE"]["default"] == "ON"
    assert override["build-dir"] != build["build-dir"], "one would rebuild what the other has built"


@pytest.mark.install
def test_pip_installs_it_and_the_short_form_runs(tmp_path: Path) -> None:
    """A fresh environment, with what pip finds for it; nothing of the repository but its text, and no make."""
    children.run([sys.executable, "-m", "venv", tmp_path / "fresh"], check=True)
    python = tmp_path / "fresh" / "bin" / "python"
    installing = [python, "-m", "pip", "install", "--quiet", ROOT]
    done = children.run(installing, cwd=tmp_path, timeout=3600)
    assert done.returncode == 0, done.stderr
    readme = (ROOT / "README.md").read_text()
    short_form, own_model, *_ = re.findall(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    done = children.run([python, "-P", "-c", short_form + own_model], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    where = children.run([python, "-P", "-c", "import aicf_mlir; print(aicf_mlir.__file__)"], cwd=tmp_path)
    assert where.stdout.startswith(str(tmp_path))
    assert children.run([python.with_name("aicf"), "info"], cwd=tmp_path).returncode == 0


V3 = processor.LEVELS["x86-64-v2"] | processor.LEVELS["x86-64-v3"]


@pytest.mark.parametrize(
    ("flags", "highest"),
    [
        (set(), "x86-64"),
        (processor.LEVELS["x86-64-v2"], "x86-64-v2"),
        (V3 | {"sse2"}, "x86-64-v3"),
        (V3 - {"bmi2"}, "x86-64-v2"),
        (V3 | processor.LEVELS["x86-64-v4"], "x86-64-v4"),
        (processor.LEVELS["x86-64-v4"], "x86-64"),  # a level needs all below it
    ],
)
def test_levels_of_a_processor(flags: set[str], highest: str) -> None:
    assert processor.levels_of(frozenset(flags))[-1] == highest


def test_the_chosen_kernels_are_built() -> None:
    assert cpu_kernels.chosen() in cpu_kernels.built()
    assert (cpu_kernels.built() == ["native"]) == _C.native


def test_a_library_that_is_none_of_these_is_refused(tmp_path: Path) -> None:
    """In a process of its own: the kernels of this one must stay."""
    code = f"""
from aicf_mlir import _C
from aicf_mlir.machine import cpu_kernels
for path in ({str(tmp_path / "missing.so")!r}, str(cpu_kernels.blas_library())):
    try:
        _C.load_cpu_kernels(path, str(cpu_kernels.blas_library()))
    except Exception as error:
        print(type(error).__name__, error)
"""
    first, second = printed(sys.executable, "-c", code).splitlines()
    assert "missing.so cannot be used" in first
    assert "it is no library of this version" in second

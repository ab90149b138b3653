"""aicf-opt as its users meet it: exit codes, messages, and no traceback whatever it is given."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import children
import pytest
from tool_calls import called
from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.dead_code_elimination import DeadCodeElimination

from aicf_mlir.errors import LoweringError
from aicf_mlir.tools import aicf_opt

ROOT = Path(__file__).parents[3]
MLP = str(ROOT / "examples" / "mlp.mlir")
IDENTITY = "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n  func.return %x : tensor<4xf32>\n}\n"

Opt = Callable[..., tuple[int, str, str]]


@pytest.fixture
def opt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Opt:
    """aicf-opt in this process: exit code, standard output, standard error."""

    def run(*arguments: str, stdin: str | bytes = "") -> tuple[int, str, str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        return called(aicf_opt.main, arguments, capsys)

    return run


def tool(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A tool in a process of its own."""
    return children.run(
        [sys.executable, "-m", f"aicf_mlir.tools.{command[0]}", *command[1:]], cwd=ROOT, **options
    )


def test_the_result_goes_to_standard_output(opt: Opt) -> None:
    code, out, err = opt(MLP)
    assert (code, err) == (0, "")
    assert out.startswith("builtin.module {\n  func.func @mlp(\n    %x: tensor<64x256xf32>")


def test_printed_text_is_read_again_and_stays_the_same(opt: Opt) -> None:
    _, custom, _ = opt(MLP)
    _, generic, _ = opt("-", "--print-op-generic", stdin=custom)
    assert generic != custom
    assert opt("-", stdin=generic) == (0, custom, "")
    assert opt(stdin=custom) == (0, custom, "")


def test_locations_are_printed_on_request(opt: Opt) -> None:
    _, out, _ = opt("-", "--print-debuginfo", stdin=IDENTITY)
    assert 'func.return %x : tensor<4xf32> loc("<stdin>":2:3)' in out
    assert opt("-", "--print-debuginfo", stdin=out)[1] == out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lowr"], "unknown option '--lowr'; did you mean --lower or --lock?"),
        (["--xyzzy"], "unknown option '--xyzzy'; see --help"),
        (["--target", "sm_999"], "there is no target 'sm_999'; there are cpu, sm_75, sm_80, sm_86"),
        (["--stage", "plan=target=sm_7"], "pass 'merge-products': there is no target 'sm_7'; there are cpu"),
        (["--select-kernels=target=gpu"], "pass 'select-kernels': there is no target 'gpu'; there are cpu"),
        (["--side-by-side"], "unknown option '--side-by-side'; it is now called --multi-stream"),
        (["-p", "read-ahead"], "unknown pass 'read-ahead'; it is now called prefetch"),
        (["-p", "lowr"], "unknown pass 'lowr'; did you mean lower?"),
        (
            ["-p", "xyzzy"],
            "unknown pass 'xyzzy'; known passes: merge-products, autodiff, accumulate, sum-ranks, average-ranks",
        ),
        (
            ["--select-kernels=goal=cpu"],
            "pass 'select-kernels' has no option 'goal'; its options: target: str = cpu",
        ),
        (
            ["--select-kernels=target=9"],
            "option 'target' of pass 'select-kernels' must be str, got 9",
        ),
        (
            ["--apply-optimizer=kind=newton"],
            "option 'kind' of pass 'apply-optimizer' must be sgd | adam | adamw | adadelta |",
        ),
        (["--apply-optimizer=nesterov=1"], "option 'nesterov' of pass 'apply-optimizer' must be bool, got 1"),
        (["--select-kernels=target"], "option 'target' of pass 'select-kernels' must be str, got nothing"),
        (["--cse=x"], "pass 'cse' has no option 'x'; it takes no options"),
        (["-p", "cse{x=}"], "cannot read the pass list 'cse{x=}'"),
        (["-p", "cse,,dce"], "cannot read the pass list 'cse,,dce'"),
        (["-p", 'cse{x="'], "cannot read the pass list"),
        (["-p"], "argument -p/--passes: expected one argument"),
        (["--pass-pipeline=any(cse,any(dce))"], "every pass works on the whole module, got passes on 'any'"),
        (["--pass-pipeline=builtin.module(csee)"], "unknown pass 'csee'; did you mean cse"),
        (["--print-ir-before=cse,lowr"], "unknown pass 'lowr'; did you mean lower?"),
        (["--elide-elementsattrs-if-larger=-1"], "expected a number of elements such as 16, got '-1'"),
        (
            ["--stage", "plan", "--mesh", "dp"],
            "expected a name and a number of processes such as dp=2, got 'dp'",
        ),
        (
            ["--lower", "--mesh", "dp=2"],
            "--mesh is for --stage; the passes of several processes are average-ranks",
        ),
        (["--stage", "plan", "--mesh", "dp=2", "--zero", "3"], "argument --zero: invalid choice: 3"),
        (
            ["--stage", "plan", "--mesh", "dp=2", "--zero", "2", "--rank", "2"],
            "expected a rank from 0 to below 2, got 2",
        ),
        (["--verify-each=maybe"], "ignored explicit argument 'maybe'"),
        (["--stage", "plans"], "unknown stage 'plans'; the stages are nn, grad, step,"),
        (["--stage", "plan=device=cpu"], "stage 'plan' takes one option, target=…, not 'device=cpu'"),
        (["other.mlir"], "unexpected argument 'other.mlir'; one input file is read"),
        (["target=cpu"], "unexpected argument 'target=cpu'; pass options follow '='"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(opt: Opt, arguments: list[str], message: str) -> None:
    code, out, err = opt(MLP, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("aicf-opt: error: ")
    assert message in err


def test_flags_never_take_the_file_name(opt: Opt) -> None:
    assert opt("--cse", "--dce", MLP) == opt(MLP, "-p", "cse,dce") == opt("-p", "cse", "--dce", MLP)


def test_help_shows_passes_and_stages(opt: Opt) -> None:
    code, out, _ = opt("--help")
    assert code == 0
    assert "select-kernels" in out
    assert "plan     every slot has an address" in out


def test_version(opt: Opt) -> None:
    code, out, _ = opt("--version")
    assert code == 0
    assert ", xDSL 0.74" in out


@pytest.mark.parametrize(
    ("path", "reason"),
    [("missing.mlir", "No such file or directory"), (".", "Is a directory"), ("a\0b", "null byte")],
)
def test_a_file_that_cannot_be_read(opt: Opt, path: str, reason: str) -> None:
    code, out, err = opt(path)
    assert (code, out) == (1, "")
    assert err.startswith(f"{path}: error: cannot be read: ")
    assert reason in err


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"a\0b", b"%x = ", b'"', b"[" * 100_000])
def test_bad_text_is_exit_code_1_and_one_message(opt: Opt, data: bytes) -> None:
    code, out, err = opt("-", stdin=data)
    assert (code, out) == (1, "")
    assert err.startswith("<stdin>:")
    assert err.count("error: ") == 1


def test_a_huge_file_is_not_read_to_its_end(opt: Opt, tmp_path: Path) -> None:
    path = tmp_path / "huge.mlir"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    code, _, err = opt(str(path))
    assert code == 1
    assert err == f"{path}: error: the text is longer than 33,554,432 bytes, the most that is read\n"


def test_the_op_that_fails_verification_is_shown(opt: Opt) -> None:
    text = "func.func @f(%x: tensor<4xf32>) -> tensor<5xf32> {\n  func.return %x : tensor<4xf32>\n}\n"
    code, _, err = opt("-", stdin=text)
    assert code == 1
    assert err.startswith("<stdin>:2:3: error: ")
    assert "  func.return %x : tensor<4xf32>\n  ^^^^^^^^^^^\n" in err


def failing_pass(message: str, error: type[Exception]) -> Callable[..., None]:
    def apply(self: object, ctx: object, op: ModuleOp) -> None:
        function = op.body.block.first_op
        assert function is not None
        function.emit_error(message, error(message))

    return apply


def test_a_failing_pass_names_itself_and_the_op(opt: Opt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeadCodeElimination, "apply", failing_pass("not today", LoweringError))
    assert opt("-", "--dce", stdin=IDENTITY) == (
        1,
        "",
        "<stdin>:1:1: error: 'func.func' op not today\n"
        "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "^^^^^^^^^\n"
        "<stdin>:1:1: note: while running pass 'dce'\n",
    )


def test_a_bug_in_a_pass_is_said_to_be_one_and_can_be_reproduced(
    opt: Opt, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(DeadCodeElimination, "apply", failing_pass("oops", TypeError))
    code, _, err = opt("-", "--dce", stdin=IDENTITY)
    assert code == 70
    assert err.splitlines()[0] == (
        "<stdin>:1:1: error: internal error, TypeError: oops"
        " (a bug in AICF: --debug shows the Python traceback)"
    )
    named = re.search(r"note: command, traceback and input are in (\S+): please send ", err)
    assert named is not None
    path = named[1]
    text = Path(path).read_text()
    assert text.startswith("// command: aicf-opt - --dce\n// Traceback (most recent call last):\n")
    assert "// TypeError: oops\n" in text
    assert text.endswith(f"\n{IDENTITY}")
    assert Path(path).parent == tmp_path
    code, _, again = opt(path, "--dce")
    assert (code, "internal error, TypeError: oops" in again) == (70, True), "a reproducer is an input"
    assert aicf_opt.main(["--debug", "--dce", MLP]) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    code, _, err = opt("-", "--dce", stdin=IDENTITY)
    assert (code, "internal error" in err, "command, traceback" in err) == (70, True, False)


def test_ir_broken_by_a_pass_is_found_after_it(opt: Opt, monkeypatch: pytest.MonkeyPatch) -> None:
    def drop_the_terminator(self: object, ctx: object, op: ModuleOp) -> None:
        list(op.walk())[-1].detach()

    monkeypatch.setattr(DeadCodeElimination, "apply", drop_the_terminator)
    code, _, err = opt("-", "--dce", stdin=IDENTITY)
    assert code == 1
    assert "note: found after pass 'dce'" in err
    assert opt("-", "--dce", "--no-verify-each", stdin=IDENTITY)[0] == 0


def test_after_an_error_the_output_file_is_as_it_was(opt: Opt, tmp_path: Path) -> None:
    out = tmp_path / "out.mlir"
    out.write_text("precious")
    assert opt("-", "-o", str(out), stdin="%")[0] == 1
    assert out.read_text() == "precious"
    assert opt(MLP, "-o", str(out))[0] == 0
    assert out.read_text().startswith("builtin.module")
    assert list(tmp_path.iterdir()) == [out]


def test_a_file_may_be_rewritten_in_place(opt: Opt, tmp_path: Path) -> None:
    path = tmp_path / "in.mlir"
    path.write_text(IDENTITY)
    assert opt(str(path), "-o", str(path))[0] == 0
    assert path.read_text().startswith("builtin.module")


def test_the_file_behind_a_link_is_written(opt: Opt, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert opt(MLP, "-o", str(tmp_path / "link"))[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text().startswith("builtin.module")


@pytest.mark.parametrize(
    ("redirect", "message"),
    [
        ("<&-", "standard input is closed"),
        (">&-", "standard output is closed"),
        (">/dev/full", "No space left"),
    ],
)
def test_streams_that_are_closed_or_full(redirect: str, message: str) -> None:
    text = "func.func private @f()"
    command = f"printf '{text}' | {sys.executable} -m aicf_mlir.tools.aicf_opt - {redirect}"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = children.run(["bash", "-c", command], cwd=ROOT, env=buffered)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_any_locale_will_do() -> None:
    text = '"test.op"() {name = "größe"} : () -> () loc("größe.py":1:1)'
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    assert tool("aicf_opt", "-", "--help", env=environment).returncode == 0
    done = tool("aicf_opt", "-", "--print-debuginfo", input=text, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    done = tool("aicf_opt", "-", input="größe", env=environment)
    assert done.stderr.splitlines()[1:] == ["größe", "^"]


def test_an_output_that_cannot_be_written(opt: Opt, tmp_path: Path) -> None:
    code, _, err = opt(MLP, "-o", str(tmp_path / "missing" / "out.mlir"))
    assert code == 1
    assert "No such file or directory" in err


def test_pieces_are_independent_and_count_lines_from_the_top(opt: Opt) -> None:
    code, out, err = opt(
        "-", "--split-input-file", stdin=f"{IDENTITY}// -----\n\none.two\n// -----\n{IDENTITY}"
    )
    assert code == 1
    assert out.count("func.func @f") == 2
    assert err.startswith("<stdin>:6:1: error: operation 'one.two'")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("one.two // expected-error {{of no known dialect}}", 0),
        ("// expected-error@+1 {{of no known}}\none.two", 0),
        ("// expected-error@below {{of no known}}\none.two", 0),
        ("one.two\n// expected-error@-1 {{of no known}}", 0),
        ("one.two\n// expected-error@above {{of no known}}", 0),
        ("one.two // expected-error {{of every dialect}}", 1),
        ("one.two\n// expected-error {{of no known}}", 1),
        ("one.two // expected-warning {{of no known}}", 1),
        (f"{IDENTITY} // expected-error {{{{anything}}}}", 1),
        ("one.two // without an announcement it is printed", 0),
    ],
)
def test_verify_diagnostics(opt: Opt, text: str, code: int) -> None:
    got, out, err = opt("-", "--verify-diagnostics", stdin=text)
    assert got == code
    assert bool(err) == bool(code)
    assert ("of no known dialect" in out) == ("expected" not in text)


def test_timing_and_dumps_go_to_standard_error(opt: Opt) -> None:
    _, plain, _ = opt(MLP, "--cse", "--dce")
    _, out, err = opt(MLP, "--cse", "--dce", "--timing", "--print-ir-after-all")
    assert out == plain
    heads = [line for line in err.splitlines() if line.startswith("// -----//")]
    assert heads == ["// -----// IR dump after cse //----- //", "// -----// IR dump after dce //----- //"]
    rows = err.split("// timing\n")[1].splitlines()
    assert [row.split("%  ")[1] for row in rows] == [
        "parse",
        "verify the input",
        "cse",
        "verify after passes",
        "dce",
        "print",
        "total",
    ]


@pytest.mark.parametrize(
    "tool", [["aicf_opt", "examples/mlp.mlir", "--print-ir-after-all"], ["aicf", "kernels"]], ids=" ".join
)
def test_a_reader_that_leaves_is_no_error(tool: list[str]) -> None:
    with children.Child(
        [sys.executable, "-m", f"aicf_mlir.tools.{tool[0]}", *tool[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_control_c_leaves_without_a_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "input.mlir"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "aicf_mlir.tools.aicf_opt", pipe]
    with children.Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as child:
        assert children.interrupted_at(pipe, child) == (130, b"", b"")


def test_aicf_opt_imports_neither_torch_nor_numpy() -> None:
    code = (
        f"import sys, aicf_mlir.tools.aicf_opt as tool; tool.main(['--lower', '--fuse', {MLP!r}])\n"
        "print(sys.modules.keys() & {'torch', 'numpy'})"
    )
    done = children.run([sys.executable, "-c", code], cwd=ROOT)
    assert done.stdout.endswith("}\nset()\n"), done.stderr


def test_results_do_not_depend_on_the_hash_seed() -> None:
    texts = {
        tool("aicf_opt", MLP, "--cse", env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in "012"
    }
    assert len(texts) == 1
    assert "func.func" in texts.pop()

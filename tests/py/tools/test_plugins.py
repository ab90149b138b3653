"""Passes from outside the tree: of installed packages, of files and of modules; and what is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import children
import pytest
from tool_calls import called

from aicf_mlir.passes.pipeline import available_passes, parse_passes
from aicf_mlir.tools import aicf_opt
from aicf_mlir.tools.plugins import GROUP, OutsidePass, PluginError, load_plugin, with_outside_passes

ROOT = Path(__file__).parents[3]
MLP = str(ROOT / "examples" / "mlp.mlir")

PASS = """
from __future__ import annotations
from dataclasses import dataclass
from xdsl.passes import ModulePass
from xdsl.transforms.dead_code_elimination import DeadCodeElimination

class Base(ModulePass):
    "No name, no pass."

@dataclass(frozen=True)
class {cls}(Base):
    "Rename every function."
    name = "{name}"
    to: str = "renamed"
    times: int | None = None

    def apply(self, ctx, op):
        for function in op.ops:
            function.properties["sym_name"] = type(function.sym_name)(self.to)

Again = {cls}
"""


def plugin(folder: Path, name: str = "rename-all", file: str = "plugin.py", text: str = PASS) -> str:
    path = folder / file
    path.write_text(text.format(cls="RenameAll", name=name) if text is PASS else text)
    return str(path)


def test_a_file_brings_the_passes_that_it_defines(tmp_path: Path) -> None:
    """Neither those that it imports nor bases without a name, and a class with two names once."""
    (found,) = load_plugin(path := plugin(tmp_path))
    assert (found.flag, found.origin) == ("rename-all", f"the plugin {path}")
    table = with_outside_passes(available_passes(), [path])
    assert list(table) == [*available_passes(), "rename-all"]
    (made,) = parse_passes("rename-all{to=other times=2}", table)
    assert vars(made) == {"to": "other", "times": 2}, "options of a file with postponed annotations"


def test_a_module_brings_the_passes_of_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "passes_of_a_package"
    package.mkdir()
    plugin(package, file="renaming.py")
    (package / "__init__.py").write_text("from .renaming import RenameAll\n")
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = load_plugin("passes_of_a_package")
    assert (found.flag, found().__module__) == ("rename-all", "passes_of_a_package.renaming")


def test_two_files_of_one_name_do_not_disturb_each_other(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = [plugin(tmp_path / "a", "first"), plugin(tmp_path / "b", "second", text=PASS)]
    table = with_outside_passes({}, paths)
    assert [one.name for one in parse_passes("first{to=x},second", table)] == ["first", "second"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has no pass: expected a subclass of xdsl.passes.ModulePass with a name"),
        ("x = y", r"NameError: name 'y' is not defined \(\S+plugin.py, line 1\)"),
        ("\nx = (", r"SyntaxError: '\(' was never closed \(\S+plugin.py, line 2\)"),
        ("raise SystemExit('no')", r"SystemExit: no \(\S+plugin.py, line 1\)"),
        ("raise ValueError('a\\nb')", r"ValueError: a b \("),
        (
            PASS.format(cls="A", name="Rename All"),
            "has a pass 'Rename All': a name is lower-case words joined by '-'",
        ),
        (
            PASS.format(cls="A", name="fuse"),
            "there are two passes 'fuse', of AICF and of the plugin .*: rename one",
        ),
        (PASS.format(cls="A", name="cse"), "there are two passes 'cse'"),
    ],
)
def test_a_plugin_that_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = plugin(tmp_path, text=text)
    with pytest.raises(PluginError, match=message) as refused:
        with_outside_passes(available_passes(), [path])
    assert path in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.py", "pass plugin 'missing.py': there is no such file"),
        ("gone.so", "pass plugin 'gone.so': ModuleNotFoundError: No module named 'gone'"),
        ("no/passes", "pass plugin 'no/passes': expected PATH.py or the name of a module"),
        ("", "pass plugin '': expected PATH.py or the name of a module"),
        ("xdsl.printer", "pass plugin 'xdsl.printer' has no pass"),
    ],
)
def test_a_plugin_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        with_outside_passes({}, [name])


def test_two_plugins_with_one_pass_are_refused_by_name(tmp_path: Path) -> None:
    paths = [plugin(tmp_path, file="a.py"), plugin(tmp_path, file="b.py")]
    with pytest.raises(
        PluginError, match=r"two passes 'rename-all', of the plugin \S+a.py and of the plugin \S+b.py"
    ):
        with_outside_passes({}, paths)


def test_a_plugin_that_is_named_twice_is_one(tmp_path: Path) -> None:
    assert list(with_outside_passes({}, [plugin(tmp_path)] * 2)) == ["rename-all"]


def test_an_option_of_a_type_that_is_not_there(tmp_path: Path) -> None:
    path = plugin(tmp_path, text=PASS.format(cls="A", name="rename-all").replace("int | None", "Number"))
    with pytest.raises(PluginError, match="the type of an option cannot be read: name 'Number'"):
        parse_passes("rename-all", with_outside_passes({}, [path]))


def opt(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return called(aicf_opt.main, arguments, capsys)


def test_the_tool_refuses_a_plugin_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = plugin(tmp_path, text="import nowhere")
    code, out, err = opt(capsys, MLP, f"--load-pass-plugin={path}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"aicf-opt: error: pass plugin '{path}': ModuleNotFoundError")
    _, _, err = opt(capsys, MLP, f"--load-pass-plugin={path}", "--debug")
    assert "Traceback (most recent call last)" in err, "for the plugin's author"
    code, _, err = opt(capsys, MLP, "--load-pass-plugin")
    assert (code, "expected one argument" in err) == (2, True)


def test_a_pass_that_is_called_as_an_option_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = opt(capsys, MLP, "--load-pass-plugin", plugin(tmp_path, "timing"))
    assert (code, "pass 'timing' of the plugin" in err, "is called as an option is" in err) == (2, True, True)


def test_a_bug_in_a_plugin_is_said_to_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = plugin(tmp_path, text=PASS.format(cls="A", name="rename-all").replace("op.ops", "op.opps"))
    code, _, err = opt(capsys, MLP, f"--load-pass-plugin={path}", "--rename-all")
    assert code == 70
    assert (
        f"AttributeError: 'ModuleOp' object has no attribute 'opps' (a bug in the plugin {path}: --debug"
        in err
    )
    assert "while running pass 'rename-all'" in err


def install(site: Path, *points: str, package: str = "renaming") -> dict[str, str]:
    """A package in the folder `site` with entry points; the environment in which Python finds it."""
    info = site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *points, ""]))
    plugin(site, file="renaming_passes.py")
    return {**os.environ, "PYTHONPATH": str(site)}


def test_passes_of_an_installed_package_are_there_from_the_start(tmp_path: Path) -> None:
    environment = install(tmp_path, "rename-all = renaming_passes:RenameAll")
    run = [sys.executable, "-m", "aicf_mlir.tools.aicf_opt", MLP]
    done = children.run([*run, "--rename-all=to=other"], cwd=ROOT, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "func.func @other(" in done.stdout
    listed = children.run([*run, "--list-passes"], cwd=ROOT, env=environment).stdout
    assert "--rename-all\n    Rename every function.\n" in listed
    assert listed.endswith("from the package renaming\n")


def test_a_package_is_imported_only_for_its_pass(tmp_path: Path) -> None:
    environment = install(tmp_path, "rename-all = nowhere:RenameAll")
    run = [sys.executable, "-m", "aicf_mlir.tools.aicf_opt", MLP]
    assert children.run([*run, "--cse"], cwd=ROOT, env=environment).returncode == 0
    done = children.run([*run, "--rename-all"], cwd=ROOT, env=environment)
    assert done.returncode == 2
    assert done.stderr == (
        "aicf-opt: error: pass 'rename-all' of the package renaming:"
        " ModuleNotFoundError: No module named 'nowhere'\n"
    )


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (["fuse = renaming_passes:RenameAll"], "two passes 'fuse', of AICF and of the package renaming"),
        (["other = renaming_passes:RenameAll"], "RenameAll has the name 'rename-all'; give both one name"),
        (
            ["other = renaming_passes:dataclass"],
            "expected a subclass of xdsl.passes.ModulePass, got <function",
        ),
        (
            ["other = renaming_passes:nothing"],
            "AttributeError: module 'renaming_passes' has no attribute 'nothing'",
        ),
    ],
)
def test_a_package_that_is_refused(tmp_path: Path, points: list[str], message: str) -> None:
    run = [sys.executable, "-m", "aicf_mlir.tools.aicf_opt", MLP, "-p", "other"]
    done = children.run(run, cwd=ROOT, env=install(tmp_path, *points))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_the_pipeline_of_a_train_step_has_no_outside_passes(tmp_path: Path) -> None:
    environment = install(tmp_path, "fuse = renaming_passes:RenameAll")
    code = (
        "from aicf_mlir.stages import STAGES, parse_passes\n"
        "print([parse_passes(stage.pass_list('cpu'))[0].name for stage in STAGES])"
    )
    done = children.run([sys.executable, "-c", code], cwd=ROOT, env=environment)
    assert "'fuse'" in done.stdout, done.stderr


def test_a_loader_checks_what_it_has() -> None:
    with pytest.raises(
        PluginError, match="pass 'a' of me: CommonSubexpressionElimination has the name 'cse'"
    ):
        OutsidePass("a", "me", available_passes()["cse"]())()

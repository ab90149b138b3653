"""Names are regular: a pass is one flag, file, class and lit test; a dialect and a tool have theirs too."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from samples import NN_SAMPLES
from xdsl.passes import ModulePass

from aicf_mlir import errors
from aicf_mlir.dialects import get_all_dialects
from aicf_mlir.passes import get_all_passes
from aicf_mlir.passes.fuse import RULES
from aicf_mlir.passes.pipeline import available_passes, describe_pass, parse_passes
from aicf_mlir.stages import STAGES
from aicf_mlir.text.parsing import make_context

ROOT = Path(__file__).parents[3]
LIT = ROOT / "tests" / "lit"


@pytest.mark.parametrize("flag", get_all_passes())
def test_flag_file_class_and_lit_test_agree(flag: str) -> None:
    pass_type = get_all_passes()[flag]()
    name = flag.replace("-", "_").replace("fuse_", "fuse.", 1)
    module = f"aicf_mlir.passes.{name}"
    assert pass_type.name == flag
    assert pass_type.__module__ == module
    assert pass_type.__name__ == "".join(part.capitalize() for part in flag.split("-")) + "Pass"
    assert f"--{flag}" in (LIT / "passes" / f"{flag}.mlir").read_text()


def test_every_rule_of_fusion_is_a_pass_in_its_order() -> None:
    rules = [rule.name for rule in RULES]
    assert [flag for flag in get_all_passes() if flag.startswith("fuse-")] == list(dict.fromkeys(rules))


@pytest.mark.parametrize("flag", available_passes())
def test_every_pass_and_every_option_is_described(flag: str) -> None:
    assert issubclass(available_passes()[flag](), ModulePass)
    assert describe_pass(flag).endswith("."), f"--list-passes shows the docstring of {flag}"


def test_every_file_in_passes_is_a_pass_or_serves_one() -> None:
    known = {flag.replace("-", "_") for flag in get_all_passes()}
    folders = {
        path.name for path in (ROOT / "aicf_mlir" / "passes").iterdir() if (path / "__init__.py").exists()
    }
    assert folders <= known


LAUNCHES = [launch for sample in NN_SAMPLES if (launch := sample.launch()) is not None]
ROUND_TRIPS = {sample.op_type().name for sample in NN_SAMPLES} | {launch.name for launch in LAUNCHES}
"""The ops whose text test_nn_samples.py prints and reads, before and after they are lowered."""


@pytest.mark.parametrize("name", get_all_dialects())
def test_every_dialect_has_its_lit_tests(name: str) -> None:
    dialect = get_all_dialects()[name]()
    assert dialect.name == name
    assert (LIT / "dialects" / name / "invalid.mlir").exists()
    tested = (LIT / "dialects" / name / "ops.mlir").read_text()
    missing = {op.name for op in dialect.operations if not re.search(rf"{re.escape(op.name)}\b", tested)}
    assert not missing - ROUND_TRIPS


def test_every_lit_test_of_a_pass_belongs_to_a_pass() -> None:
    names = {path.stem for path in (LIT / "passes").glob("*.mlir")}
    assert all(
        any(name == flag or name.startswith(f"{flag}-") for flag in available_passes()) for name in names
    )


def test_stages_name_passes_and_dialects_that_exist() -> None:
    known = make_context().registered_dialect_names
    for stage in STAGES:
        assert parse_passes(stage.pass_list("sm_90"))
        assert stage.dialects <= set(known)


def test_every_tool_is_installed_under_its_module_name() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    modules = {path.stem for path in (ROOT / "aicf_mlir" / "tools").glob("aicf*.py")}
    assert {name.replace("-", "_") for name in scripts} == modules
    for name, entry in scripts.items():
        assert entry == f"aicf_mlir.tools.{name.replace('-', '_')}:main"


def test_errors_are_one_hierarchy() -> None:
    own = [value for value in vars(errors).values() if getattr(value, "__module__", "") == errors.__name__]
    classes = [value for value in own if isinstance(value, type)]
    assert errors.TraceError in classes
    assert all(issubclass(value, errors.AicfError) and value.__doc__ for value in classes)


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    folders = ("aicf_mlir", "csrc", "tests/py", "bench", "examples")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    texts = [path for path in sources if path.suffix in (".py", ".cpp", ".h", ".cu", ".cuh")]
    assert texts
    assert [path for path in texts if len(path.read_text().splitlines()) > 400] == []

"""Runs the `RUN:` lines of tests/lit: by `make lit`, or by plain `lit tests/lit` with the lit of the environment."""

import os
import sys
from pathlib import Path

import lit.formats

root = Path(__file__).resolve().parents[2]

config.name = "aicf"
config.test_format = lit.formats.ShTest()
config.suffixes = [".mlir"]
config.test_source_root = str(root / "tests" / "lit")
config.test_exec_root = str(root / "build" / "lit")

# The tools stand beside the Python that runs lit; a test must not see another installation.
tools = Path(sys.executable).parent
config.environment["PATH"] = os.pathsep.join([str(tools), os.environ.get("PATH", "")])
config.environment["PYTHONWARNINGS"] = "error::DeprecationWarning"
config.substitutions += [
    ("%examples", str(root / "examples")),
    # custom text → generic text → custom text, and custom → custom
    (
        "ROUNDTRIP",
        "aicf-opt %s --print-op-generic --split-input-file | aicf-opt --split-input-file | filecheck %s",
    ),
    ("GENERIC", "aicf-opt %s --print-op-generic --split-input-file | filecheck %s --check-prefix=GENERIC"),
]
if not (tools / "aicf-opt").exists():  # not installed yet: run the modules of this tree
    config.environment["PYTHONPATH"] = str(root)
    for tool in ("aicf-opt", "aicf-run", "aicf-trace"):
        module = f"aicf_mlir.tools.{tool.replace('-', '_')}"
        config.substitutions.append((rf"\b{tool}\b(?!/)", f"{sys.executable} -m {module}"))

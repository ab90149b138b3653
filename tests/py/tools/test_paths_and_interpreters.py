"""Where AICF runs: scripts in folders of any name, whatever the locale; never in a sub-interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import children
import pytest

from aicf_mlir.ir.locations import in_unicode

TRAINED = """
import sys
import torch
from aicf_mlir import compile_train_step

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 7), torch.nn.GELU(), torch.nn.Linear(7, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
batch = {"x": torch.ones(5, 4), "t": torch.zeros(5, 3)}

def loss(model, batch):
    return ((model(batch["x"]) - batch["t"]) ** 2).mean()

step = compile_train_step(model, opt, loss_fn=loss, example=batch, device="cpu", check_finite=True)
step.train_step(batch)
step.capture(batch)
step.replay(2)
assert "train.py" in str(step.describe())
path = sys.argv[0] + ".saved"
step.save(path)
step.load(path)
batch["x"][0] = float("nan")
try:
    step.train_step(batch)
except FloatingPointError as error:
    print(ascii(str(error)))
print("trained")
"""

NO_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("name", ["häß", b"latin-\xe4"], ids=["utf8", "latin1"])
@pytest.mark.parametrize("locale", [NO_UTF8, {}], ids=["C", "own"])
def test_a_script_in_any_folder(name: str | bytes, locale: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(os.fsencode(name))
    folder.mkdir()
    (folder / "train.py").write_text(TRAINED)
    done = children.run(
        [sys.executable, os.fsencode(folder / "train.py")],
        env={**os.environ, "AICF_CACHE_DIR": os.fsdecode(os.fsencode(folder / "cache")), **locale},
        timeout=120,
    )
    assert done.stdout.splitlines()[-1:] == ["trained"], done.stderr
    assert "batch's 'x' is nan" in done.stdout


def test_text_for_cpp() -> None:
    assert in_unicode("häß") == "häß"
    assert in_unicode("h\udcc3\udca4") == "hä"
    assert in_unicode("h\udce4") == "h\\xe4"


IMPORTED = """
try:
    import _interpreters as interpreters
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    run = interpreters.run_string
run(interpreters.create(), '''
import sys
sys.path[:] = {path!r}
try:
    import aicf_mlir
except ImportError as error:
    print(error, flush=True)
''')
import aicf_mlir
print("main", flush=True)
"""


def test_a_sub_interpreter_is_refused() -> None:
    """It waited for ever in the initialization of the compiled module."""
    done = children.run([sys.executable, "-c", IMPORTED.format(path=sys.path)], timeout=60)
    assert done.stdout.splitlines() == [
        "aicf_mlir was imported in a sub-interpreter; as NumPy and torch, it runs in the main interpreter of a process "
        "only: use threads, or processes of multiprocessing",
        "main",
    ], done.stderr

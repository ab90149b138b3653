"""Children of tests can be interrupted and cannot hang, and no test starts one in another way."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import children
import pytest

HERE = Path(__file__).parents[1]
STARTERS = {
    *(f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")),
    *("os.fork", "os.system", "os.popen", "os.spawnv", "os.posix_spawn", "pty.spawn"),
    *("multiprocessing.Process", "multiprocessing.Pool", "concurrent.futures.ProcessPoolExecutor"),
}
"""What starts a process; `import subprocess` and its like are for names of errors and pipes."""
HANDLER = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"


@pytest.fixture
def ignored_interrupt():
    """As under nohup in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ignored_interrupt")
def test_children_take_an_interrupt_that_the_tests_ignore() -> None:
    assert children.run([sys.executable, "-c", HANDLER]).stdout == "True\n"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    with children.Child([sys.executable, "-c", HANDLER], stdout=subprocess.PIPE) as child:
        assert child.communicate()[0] == b"True\n"
    assert children.fork(lambda: str(signal.getsignal(signal.SIGINT) == signal.SIG_DFL)) == "True"


def test_a_child_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "LIMIT_S", 0.2)
    forever = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    with pytest.raises(subprocess.TimeoutExpired):
        children.run(forever)
    with children.Child(forever) as child:
        assert child.wait() == -signal.SIGKILL


def test_a_child_ends_with_its_block() -> None:
    forever = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    with children.Child(forever) as child:
        assert child.poll() is None
    assert child.returncode == -signal.SIGKILL


def test_a_forked_child_reports() -> None:
    assert children.fork(lambda: "done") == "done"
    assert children.fork(lambda: str(1 // 0)) == "ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize("path", sorted(HERE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_other_way_to_start_a_process(path: Path) -> None:
    if path.stem == "children":
        return
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    found = [f"{path.name}:{call.lineno}: {ast.unparse(call.func)}" for call in calls]
    started = [place for place in found if place.rpartition(" ")[2] in STARTERS]
    assert started == [], "use children.run, children.Child or children.fork: they have a time limit"

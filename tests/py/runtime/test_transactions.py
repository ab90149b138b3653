"""A step is a transaction: threads, signals, forks and refused batches leave it as it was, or whole steps further.

`--calls N` sets how many calls the threads make, `--signals N` how often each call is interrupted.
"""

from __future__ import annotations

import hashlib
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from children import SUPPORT, Child, run
from models import mlp, regression

from aicf_mlir import BindError, StateError, compile_train_step

Batch = dict[str, torch.Tensor]


def make(
    device: str = "cpu", lr: float = 1e-2, widths: tuple[int, int, int] = (8, 17, 8), rows: int = 5
) -> tuple[Any, Any, Any, Batch]:
    model = mlp(*widths).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    batch = {name: tensor.to(device) for name, tensor in regression(rows).items()}
    return model, optimizer, compile_train_step(model, optimizer, example=batch, device=device), batch


def digest(step: Any) -> str:
    """Of everything that the step keeps."""
    total = hashlib.sha256()
    for name, arena in step._store.arenas.items():
        total.update(name.encode() + arena.read(0, arena.nbytes))
    return total.hexdigest()


@pytest.mark.parametrize("host", [False, pytest.param(True, marks=pytest.mark.gpu)])
def test_threads_get_the_loss_of_their_own_batch(
    device: str, host: bool, request: pytest.FixtureRequest
) -> None:
    """With lr = 0 a batch has one loss for ever, so a call that trains on another thread's batch shows."""
    model, _, step, batch = make(device, lr=0.0, rows=100)
    batches = [{k: v * (1 + i) for k, v in batch.items()} for i in range(8)]
    if host:
        batches = [{k: v.cpu() for k, v in batch.items()} for batch in batches]
    losses = [float(step.train_step(b)) for b in batches]
    assert len(set(losses)) == 8
    step.capture(batches[0])
    before = [p.detach().clone() for p in model.parameters()]
    calls = int(request.config.getoption("--calls")) // 8
    accepted, refused, wrong = [0] * 8, [0] * 8, list[str]()
    barrier = threading.Barrier(8)

    def work(i: int) -> None:
        generator = random.Random(i)
        barrier.wait()
        while accepted[i] < calls:
            try:
                match generator.randrange(4):
                    case 0:
                        loss = step.train_step(batches[i])
                    case 1:
                        loss = step.replay(inputs=batches[i])
                    case 2:
                        loss = step.replay(3, inputs=batches[i])
                        accepted[i] += 2
                    case _:
                        loss = step.train_step({**batches[i], "t": batches[i]["t"][:2]})
                accepted[i] += 1
                if float(loss) != losses[i]:
                    wrong.append(f"thread {i}: {float(loss)} instead of {losses[i]}")
            except StateError:
                refused[i] += 1
                time.sleep(1e-4)  # whoever is inside needs the interpreter too
            except BindError:
                pass

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not wrong, wrong[:5]
    assert step.meta["step"] == 8 + sum(accepted)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_everything_else_waits_its_turn_too(device: str) -> None:
    """While a long replay runs, nothing may copy, restore or write what it uses."""
    _, _, step, batch = make(device)
    step.train_step(batch)
    step.capture(batch)
    saved = step.snapshot()
    inside, errors = threading.Event(), list[str]()

    def replay() -> None:
        with step._session:
            inside.set()
            finished.wait(30)

    finished = threading.Event()
    thread = threading.Thread(target=replay)
    thread.start()
    assert inside.wait(30)
    before = digest(step)
    calls: dict[str, Callable[[], object]] = {
        "train_step": lambda: step.train_step(batch),
        "replay": lambda: step.replay(inputs=batch),
        "warmup": lambda: step.warmup(batch),
        "profile": lambda: step.profile(1, batch),
        "capture": lambda: step.capture(batch),
        "snapshot": step.snapshot,
        "restore": lambda: step.restore(saved),
        "reset": step.reset,
        "recompile": step.recompile,
        "save": lambda: step.save("nowhere"),
        "close": step.close,
        "lr": lambda: step.meta.__setitem__("lr", 1.0),
        "pin": lambda: step.meta.__setitem__("bc1_inv", 1.0),
    }
    for name, call in calls.items():
        try:
            call()
            errors.append(name)
        except StateError as error:
            assert "in use by another thread" in str(error)
    assert digest(step) == before
    finished.set()
    thread.join(30)
    assert not errors
    step.replay()


class Interrupts:
    """Sends SIGINT from another process at random moments while a call is repeated."""

    def __init__(self) -> None:
        script = """
            import os, sys, time
            for line in sys.stdin:
                time.sleep(float(line))
                os.kill(os.getppid(), 2)
                print("sent", flush=True)
        """
        self.sender = Child(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.armed = False
        self.sent = self.received = 0

    def handler(self, *_: object) -> None:
        self.received += 1
        if self.armed:
            raise KeyboardInterrupt

    def during(self, call: Callable[[], object], delay: float) -> bool:
        """Repeat `call` until a signal has come; whether it was interrupted."""
        assert self.sender.stdin is not None and self.sender.stdout is not None
        interrupted = False
        try:
            self.sent, self.armed = self.sent + 1, True
            self.sender.stdin.write(f"{delay}\n")
            self.sender.stdin.flush()
            for _ in range(100_000):
                call()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            self.armed = False
            assert self.sender.stdout.readline() == "sent\n"
            deadline = time.monotonic() + 10
            while self.received < self.sent and time.monotonic() < deadline:  # another thread may have got it
                time.sleep(1e-4)
        return interrupted


@contextmanager
def interrupts() -> Generator[Interrupts]:
    storm = Interrupts()
    before = signal.signal(signal.SIGINT, storm.handler)
    try:
        yield storm
    finally:
        signal.signal(signal.SIGINT, before)
        assert storm.sender.stdin is not None
        storm.sender.stdin.close()
        storm.sender.wait(10)


CALLS: dict[str, Callable[[Any, Batch, Any, Path], object]] = {
    "train_step": lambda step, batch, saved, path: step.train_step(batch),
    "replay(1)": lambda step, batch, saved, path: step.replay(),
    "replay(n)": lambda step, batch, saved, path: step.replay(500),
    "warmup": lambda step, batch, saved, path: step.warmup(batch, 2),
    "profile": lambda step, batch, saved, path: step.profile(2, batch),
    "capture": lambda step, batch, saved, path: (step.reset(), step.warmup(batch), step.capture(batch)),
    "restore": lambda step, batch, saved, path: step.restore(saved),
    "save": lambda step, batch, saved, path: step.save(path / "checkpoint"),
    "first replay(n)": lambda step, batch, saved, path: (step.restore(saved), step.replay(3)),
}


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_never_tears_a_step(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """After each signal the bytes are those of a whole number of steps, and `state_dict()` is complete."""
    if threading.current_thread() is not threading.main_thread():
        pytest.fail("signals need the main thread")
    _, optimizer, step, batch = make()
    fresh = step.snapshot()
    step.train_step(batch)
    step.capture(batch)
    saved = fresh if name.startswith("first") else step.snapshot()
    step.restore(fresh)
    step.replay()
    trajectory = {digest(step): 1}
    limit = 60_000
    generator, at, interrupted = random.Random(name), 1, 0
    counting = name in ("train_step", "replay(1)", "replay(n)")
    with interrupts() as storm:
        for _ in range(int(request.config.getoption("--signals"))):
            interrupted += storm.during(
                lambda: CALLS[name](step, batch, saved, tmp_path), generator.uniform(0, 0.004)
            )
            if step.state != "captured":
                step.warmup(batch)
                step.capture(batch)
            count = int(next(iter(optimizer.state.values()))["step"]) if optimizer.state else 0
            state = optimizer.state_dict()["state"]
            assert all(set(entry) == {"step", "exp_avg", "exp_avg_sq"} for entry in state.values())
            assert len(state) in ((0, 4) if name.startswith("first") else (4,))
            if counting:
                assert at <= count < limit
                at = count
            now = digest(step)
            assert trajectory.setdefault(now, count) == count
            if at > 20_000:
                step.restore(fresh)
                step.replay()
                at = 1
    assert interrupted
    check_trajectory(trajectory)


def check_trajectory(trajectory: dict[str, int]) -> None:
    """Every state that was seen is one that the same number of undisturbed steps reaches."""
    _, _, step, batch = make()
    zero = digest(step)
    step.train_step(batch)
    step.capture(batch)
    reached = {0: zero, 1: digest(step)}
    wanted = set(trajectory.values())
    done = 1
    for count in sorted(wanted - {0, 1}):
        step.replay(count - done)
        done = count
        reached[count] = digest(step)
    for seen, count in trajectory.items():
        assert seen == reached[count], f"torn at step {count}"


FORK = """
    import sys
    import torch
    sys.path[:0] = {path!r}
    from children import fork
    from test_transactions import make, refusals
    torch.set_num_threads(2)
    model, optimizer, step, batch = make(widths=(8, 600, 8))
    step.train_step(batch)
    step.capture(batch)
    saved = step.snapshot()
    print(fork(lambda: refusals(step, batch, saved)))
    step.replay()
"""


def refusals(step: Any, batch: Batch, saved: Any) -> str:
    """What a forked child is told for each call."""
    calls: list[Callable[[], object]] = [
        lambda: step.train_step(batch),
        step.replay,
        lambda: step.replay(inputs=batch),
        lambda: step.warmup(batch),
        step.profile,
        step.snapshot,
        lambda: step.restore(saved),
        step.reset,
        lambda: step.capture(batch),
        step.recompile,
        lambda: step.save("nowhere"),
        lambda: step.meta.__setitem__("lr", 0.0),
    ]
    told: list[str] = []
    for call in calls:
        try:
            call()
            told.append("nothing")
        except StateError as error:
            told.append(str(error))
    return "; ".join(sorted(set(told)))


def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    """With more than one thread in the parent: whoever calls into a library in the child waits for ever."""
    script = tmp_path / "fork.py"
    script.write_text(textwrap.dedent(FORK.format(path=[SUPPORT, str(Path(__file__).parent)])))
    done = run([sys.executable, str(script)])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "this step was created before fork(); create the step in the child process\n"


class Raising(torch.Tensor):
    """A tensor whose every operation fails."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("no operation works")


def freed(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def cut(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(8)
    return tensor


BAD: dict[str, Callable[[torch.Tensor], object]] = {
    "sparse": lambda t: t.to_sparse(),
    "freed storage": freed,
    "cut storage": cut,
    "batched": lambda t: vars(torch._C)["_functorch"]._add_batch_dim(t[None], 0, 1),  # pyright: ignore[reportPrivateUsage]
    "meta": lambda t: t.to("meta"),
    "another dtype": lambda t: t.double(),
    "another shape": lambda t: t[:3],
    "no tensor": lambda t: t.tolist(),
    "nothing": lambda t: None,
}


@pytest.mark.parametrize("name", BAD)
def test_half_a_batch_is_never_loaded(name: str, device: str) -> None:
    """The first entry is good and new, the second is refused: the next replay must train on the batch before."""
    _, _, step, batch = make(device)
    _, _, control, _ = make(device)
    for one in (step, control):
        one.train_step(batch)
        one.capture(batch)
    bad = {"x": batch["x"] * 100, "t": BAD[name](batch["t"])}
    calls = {
        "train_step": lambda: step.train_step(bad),
        "replay": lambda: step.replay(inputs=bad),
        "warmup": lambda: step.warmup(bad),
        "profile": lambda: step.profile(1, bad),
        "capture": lambda: step.capture(bad),
    }
    told = "input 't': Tensor has no ordinary memory .*pass a dense" if name == "batched" else "input 't'"
    for name_of_call, call in calls.items():
        with pytest.raises(BindError, match=told):
            call()
        assert torch.equal(step.replay(2), control.replay(2)), name_of_call
        assert digest(step) == digest(control), name_of_call


def test_a_subclass_of_tensor_counts_as_a_tensor(device: str) -> None:
    _, _, step, batch = make(device)
    _, _, control, _ = make(device)
    odd = {"x": batch["x"].as_subclass(Raising), "t": batch["t"].as_subclass(Raising)}
    assert torch.equal(step.train_step(odd), control.train_step(batch))
    strided = {"x": batch["x"].t().contiguous().t(), "t": torch.stack([batch["t"]] * 2, -1)[..., 1]}
    assert torch.equal(step.train_step(strided), control.train_step(batch))


def test_a_batch_that_is_the_steps_own_memory(device: str) -> None:
    """Inputs that lie in the step's arenas are copied before anything is written."""
    model, _, step, batch = make(device)
    twin, _, control, _ = make(device)
    assert torch.equal(
        step.train_step({"x": model[2].weight[:, :8].detach()[:5], "t": batch["t"]}),
        control.train_step({"x": twin[2].weight[:, :8].detach()[:5].clone(), "t": batch["t"]}),
    )

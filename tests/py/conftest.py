"""Shared test set-up: tests marked `gpu` need a CUDA device, those marked `nvrtc` that
library, and are skipped where there is none.

A usual run has of each test function as many cases, and as much of `some(LIST)`, as its budget allows (`support/costs.py`). Of
functions whose cheapest case is long it has those marked `usual`, and the cheapest of each file. It verifies whole modules after
each pass in every sixteenth test. `--campaign` has them all, tests marked `campaign`, and more of what is drawn by chance. Tests
that are asked for by name have all their cases. `--measure-costs` writes what they cost.
`--programs N`, `--gradients N`, `--mutants N` and `--seed S` set how many random programs, programs with nested gradients,
mutated texts and plans run and where their seeds start; `--opinfo-samples N` how many samples of each op of torch train;
`--user-models` trains every model that users write, not some of each theme;
`--coverage-dir FOLDER` tries the models of a folder on `--coverage-device`;
`--kills N` how often a training process is killed; `--calls N` how many calls eight threads make;
`--install` installs the package into a fresh environment, which takes minutes and a package index;
`--signals N` how often each call is interrupted; `--lives N` how many random sequences of calls are mirrored in torch.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path
from zlib import crc32

import costs
import pytest
import torch

if devices := os.environ.get("AICF_TEST_GPUS"):  # before CUDA starts: each worker on one of these, as "0,1"
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.environ["CUDA_VISIBLE_DEVICES"] = devices.split(",")[worker % (devices.count(",") + 1)]

from aicf_mlir import _C
from aicf_mlir.codegen import nvrtc
from aicf_mlir.ir.verify import Verifier


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("random programs")
    group.addoption("--programs", type=int, help="how many random programs to run (8, in a campaign 300)")
    group.addoption(
        "--gradients", type=int, help="how many with nested gradients, a fifth with vmap (2, 1000)"
    )
    group.addoption("--mutants", type=int, help="how many mutated texts and plans to try (16, 200)")
    group.addoption("--seed", type=int, default=0, help="seed of the first of them (0)")
    parser.addoption(
        "--opinfo-samples", type=int, default=0, help="samples of every op of torch, not one of some ops (0)"
    )
    parser.addoption("--user-models", action="store_true", help="every row of user_models, not some")
    parser.addoption("--coverage-dir", help="a folder of models to replay (two cases made for the test)")
    parser.addoption("--coverage-device", default="cpu", help="where they are trained (cpu)")
    parser.addoption("--install", action="store_true", help="install into a fresh environment (minutes)")
    parser.addoption("--kills", type=int, help="how often a training process is killed (3, 10)")
    parser.addoption("--calls", type=int, default=400, help="how many calls eight threads make (400)")
    parser.addoption("--signals", type=int, default=20, help="how often each call is interrupted (20)")
    parser.addoption("--lives", type=int, help="how many random sequences of calls are mirrored (1, 12)")
    parser.addoption(
        "--campaign", action="store_true", help="every case of the tests, and more of what is drawn"
    )
    parser.addoption(
        "--measure-costs", action="store_true", help="a campaign that writes costs.tsv (with -n 0)"
    )


COUNTS = {
    "programs": (8, 300),
    "mutants": (16, 200),
    "lives": (1, 12),
    "gradients": (2, 1000),
    "kills": (3, 10),
}
"""How many there are where nobody says: usually, and in a campaign."""


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--measure-costs"):
        config.option.campaign = True
        config.pluginmanager.register(costs.Measuring())
    campaign = bool(config.getoption("--campaign"))
    config.option.counts_given = any(config.getoption(name) is not None for name in COUNTS)
    for name, counts in COUNTS.items():
        if config.getoption(name) is None:
            setattr(config.option, name, counts[campaign])
    torch.set_num_threads(1)  # the models are tiny, and the tests run in parallel
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # in child processes too
    start = str(Path(__file__).parent / "support/start")
    os.environ["PYTHONPATH"] = os.pathsep.join([start, *filter(None, [os.environ.get("PYTHONPATH")])])
    config.addinivalue_line("markers", "gpu: needs a CUDA device and a build with CUDA")
    config.addinivalue_line("markers", "nvrtc: compiles for a GPU, and needs none")
    config.addinivalue_line("markers", "install: builds and installs the package, with --install only")
    config.addinivalue_line("markers", "usual: runs in a usual run however long it takes: a main path")
    config.addinivalue_line("markers", "campaign: runs with --campaign only: another test shows its faults")
    for name, title, _ in _C.libraries():
        config.addinivalue_line("markers", f"{name}: runs a kernel of {title} on a CUDA device")


def libraries_here() -> set[str]:
    """The libraries that plans for the first CUDA device here may use."""
    return set(_C.target_of("cuda:0").split("+")[1:]) if _C.device_count("cuda") else set()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Arguments that are the seed of each random program in turn."""
    for name, option, share in (
        ("program_seed", "--programs", 1),
        ("gradient_seed", "--gradients", 1),
        ("batched_seed", "--gradients", 5),
    ):
        if name in metafunc.fixturenames:
            first, count = (int(metafunc.config.getoption(option)) for option in ("--seed", option))
            metafunc.parametrize(name, range(first, first - -count // share))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = {} if _C.device_count("cuda") else {"gpu": "no CUDA device"}
    for name, title, _ in _C.libraries():
        if name not in libraries_here():
            missing[name] = f"no {title}, or AICF_{name.upper()}=0 in the environment"
    if not nvrtc.available():
        missing["nvrtc"] = "no NVRTC: the package nvidia-cuda-nvrtc has it"
    for item in items:
        for marker, reason in missing.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))

    left_out = set() if is_asked_for(config) else set(costs.beyond_budget(items, costs.read()))
    if not config.getoption("--install"):
        left_out |= {item for item in items if item.get_closest_marker("install")}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def is_asked_for(config: pytest.Config) -> bool:
    """Whether a campaign runs, or tests that are named or counted: nothing is left out of them."""
    return bool(
        config.getoption("--campaign")
        or config.getoption("counts_given")
        or config.getoption("keyword")
        or any("::" in argument for argument in config.args)
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Verify all of a module after each pass, not only what has changed: in a usual run in every sixteenth test."""
    Verifier.WHOLE = is_asked_for(item.config) or crc32(item.nodeid.encode()) % 16 == 0


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name what has failed at once: a campaign may be ended before its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} failed:", *report.longreprtext.splitlines()[-3:], sep="\n", flush=True)


def pytest_collection_finish() -> None:
    """Have a worker collect young garbage as Python does, and not as other children of tests do."""
    gc.set_threshold(700, 10, 50)  # but for full searches: a tenth of all time was in them
    keep_what_is_left()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """After the last test of a file, keep what it has left."""
    yield
    if nextitem is None or nextitem.path != item.path:
        keep_what_is_left()


def keep_what_is_left() -> None:
    """Leave what is alive, millions of objects that are imported, collected or cached, out of further searches for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def some(request: pytest.FixtureRequest) -> costs.Some:
    """The items of a sequence for which the test has time: in a usual run as the costs say, from the first to the last."""
    cost = None if is_asked_for(request.config) else costs.read().get(costs.function_of(request.node))
    return lambda items: costs.some(items, cost)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Each device in turn: "cpu", and "cuda" where there is one."""
    return str(request.param)

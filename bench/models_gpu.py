"""Whole train steps of real models on a GPU: AICF beside torch eager, torch's CUDA graph, and torch.compile in that graph.

    python bench/models_gpu.py [--rows gpt2:32,nerf,…] [--contenders aicf,graph,compile] [--seconds 0.3] [--budget 1500]
    python bench/models_gpu.py --json FILE --profiles FOLDER    # all that was measured; AICF launch by launch
    python bench/models_gpu.py --tune --rows resnet18:512       # AICF with the lock that aicf-tune measures first
    python bench/models_gpu.py --tune --schedules --rows vit    # which has schedules of generated kernels too
    python bench/models_gpu.py --contenders aicf,aicf+batch     # replay(n), and replay(inputs=batch) for each step
    python bench/models_gpu.py --tiny --certify --contenders aicf # the certificate of each row, and the bits of 20 runs
    python bench/models_gpu.py --device cpu --tiny              # sizes of a few elements: whether everything runs

A row of `model_rows.py` is a model, AdamW and its default sizes; --help lists them. "bf16" rows compute under torch.autocast.
All contenders begin with the same weights and see one batch; their losses after ten steps are compared, those of a row with
dropout roughly. Each measurement is the median of five windows, synchronised at both ends, in a process of its own with a time
limit; contenders take turns row by row, and what no longer fits into the budget of seconds is skipped, which a line says. The
table comes last: microseconds a step, how far AICF's loss is from the peers', the most memory. The exit status is 1 where AICF
failed or trained something else than its peers. `--certify` examines AICF's captured step, on the host too, which takes minutes
and gigabytes in other sizes than tiny ones. It fails as well where 20 runs from one state differ in a bit.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contender import Contender, describe_machine, repeat, timed
from in_child import Part, in_child
from model_rows import ROWS, Row
from peak import Peak
from rows_table import OURS, cell, loss_off, table
from torch import Tensor, nn
from transformer_models import Batch, Case, Wrap

from aicf_mlir import compile_step, compile_train_step

COMPARED, WINDOWS = 10, 5
RUNS, RUN = 20, 3
"""How often `--certify` repeats a run, and its steps."""
ALLOWED = {"f32": 0.05, "bf16": 0.2}
"""How far the loss may be off, as a part of what it has fallen."""
NEAR = {"f32": 1e-4, "bf16": 4e-3, "drawn": 0.02}
"""How far it always may be, as a part of itself; "drawn" where masks are drawn, which fall otherwise for each contender."""


Step = Callable[[], Tensor]


def optimizer_of(model: nn.Module, **options: bool) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **options)


def placed(row: Row, options: argparse.Namespace) -> tuple[Case, nn.Module, list[Batch]]:
    """The case, its first weights, and the micro-batches of a step, on the device."""
    case = row.of(options.tiny)
    torch.manual_seed(0)
    model = case.model().to(options.device)
    torch.manual_seed(1)
    batches = [case.batch() for _ in range(row.accumulate)]
    return case, model, [{name: x.to(options.device) for name, x in batch.items()} for batch in batches]


def loss_of(row: Row, case: Case, device: str) -> Callable[[nn.Module, Batch], Tensor]:
    """The loss, in the precision of the row."""
    plain = case.loss
    assert plain is not None

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        narrow = torch.autocast(device, torch.bfloat16)
        context: AbstractContextManager[object] = narrow if row.precision == "bf16" else nullcontext()
        with context:
            return plain(model, batch)

    return loss


def torch_step(row: Row, options: argparse.Namespace, compiled: bool, **given: bool) -> Step:
    """A step as it is written in torch."""
    case, model, batches = placed(row, options)
    if row.images:
        torch.backends.cudnn.benchmark = True
        model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        batches = [{**batch, "x": batch["x"].to(memory_format=torch.channels_last)} for batch in batches]
    wrap: Wrap = partial(torch.compile, fullgraph=True) if compiled else lambda f: f
    if case.body is not None:
        body = case.body(model, partial(optimizer_of, **given), wrap)
        return lambda: body(batches[0]).detach()
    optimizer, loss = optimizer_of(model, **given), wrap(partial(loss_of(row, case, options.device), model))

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=options.device)
        for batch in batches:
            part = loss(batch) / row.accumulate
            part.backward()
            total += part.detach()
        if row.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), row.clip)
        optimizer.step()
        return total

    return step


def in_graph(step: Step) -> Iterator[Step]:
    """A step for the side stream and what warms it up, then its CUDA graph."""
    yield step
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay(alive: object = step) -> Tensor:
        del alive
        graph.replay()
        return loss

    yield replay


def by_torch(row: Row, options: argparse.Namespace, compiled: bool, graphed: bool) -> Contender:
    if not graphed or options.device == "cpu":
        if graphed and not compiled:
            raise ValueError("a CUDA graph needs --device cuda")
        return Contender("torch", partial(repeat, torch_step(row, options, compiled, fused=True)))
    stages = in_graph(torch_step(row, options, compiled, fused=True, capturable=True))
    warm, run = next(stages), None

    def steps(n: int) -> float:
        """The first call warms up on a side stream, in which the first steps count too."""
        nonlocal run
        if run is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                loss = repeat(warm, n)
            torch.cuda.current_stream().wait_stream(side)
            if n > 1:
                run = next(stages)
            return loss
        return repeat(run, n)

    return Contender("torch", steps)


def our_step(row: Row, options: argparse.Namespace, lock: Path | None = None) -> tuple[Any, Any, nn.Module]:
    """The step, what it trains on, and the model."""
    case, model, batches = placed(row, options)
    if case.body is not None:
        step = compile_step(
            case.body(model, optimizer_of, lambda f: f), example=batches[0], device=options.device, lock=lock
        )
    else:
        asked = {"accumulate": row.accumulate} if row.accumulate > 1 else {}
        step = compile_train_step(
            model, optimizer_of(model), example=batches[0], device=options.device, name="bench", lock=lock,
            loss_fn=loss_of(row, case, options.device), clip_grad_norm=row.clip, **asked,
        )  # fmt: skip
    return step, batches if row.accumulate > 1 else batches[0], model


def tuned(row: Row, options: argparse.Namespace, folder: Path) -> Path:
    """The lock that `aicf-tune` measures for the step."""
    plan, lock = folder / "step.mlir", folder / "aicf.lock"
    plan.write_text(our_step(row, options)[0].ir("plan"))
    gc.collect()  # the memory of that step
    more = ["--schedules"] if options.schedules else []
    tool = [sys.executable, "-m", "aicf_mlir.tools.aicf_tune", *more, plan, "-o", lock]
    subprocess.run(tool, check=True, timeout=options.limit)
    return lock


def ours(row: Row, options: argparse.Namespace, loads: bool = False) -> Contender:
    """`replay(n)`, which computes once what follows from the batch alone; with `loads` the batch is copied in for each step."""
    with tempfile.TemporaryDirectory() as folder:
        step, given, model = our_step(
            row, options, tuned(row, options, Path(folder)) if options.tune else None
        )
    step.warmup(given)  # changes no weight, nor does the capture
    step.capture(given)

    def run(n: int) -> float:
        for _ in range(n - 1 if loads else 0):
            step.replay(inputs=given)
        return float(step.replay(inputs=given, sync=True) if loads else step.replay(n, sync=True))

    run.step, run.certified = step, partial(certified, step, given, model)  # pyright: ignore[reportFunctionMemberAccess]
    return Contender("AICF", run, ours=True)


def certified(step: Any, given: Any, model: nn.Module) -> Part:
    """An error where the certificate is not equal, or runs from one state differ in a bit."""
    begun, digests = step.snapshot(), set[str]()
    for _ in range(RUNS):
        step.restore(begun)
        sha = hashlib.sha256(str(float(step.replay(RUN, sync=True)).hex()).encode())
        for x in (*model.parameters(), *model.buffers()):
            sha.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        digests.add(sha.hexdigest())
    step.reset()
    step.warmup(given)
    certificate = step.capture(given, verify="bitwise", steps=RUN)
    if len(digests) > 1:
        return {"error": f"{RUNS} runs from one state have {len(digests)} results"}
    return {"certified": True} if certificate.equal else {"error": str(certificate)}


CONTENDERS: Mapping[str, Callable[[Row, argparse.Namespace], Contender]] = {
    OURS: ours,
    f"{OURS}+batch": partial(ours, loads=True),
    "eager": partial(by_torch, compiled=False, graphed=False),
    "graph": partial(by_torch, compiled=False, graphed=True),
    "compile": partial(by_torch, compiled=True, graphed=True),
}


def parts_of(name: str, contender: str, options: argparse.Namespace) -> Iterator[Part]:
    """One contender in one row, in the process of its own."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    on_gpu, started = options.device == "cuda", time.monotonic()
    peak = Peak() if on_gpu and contender.startswith(OURS) else None
    made = CONTENDERS[contender](ROWS[name], options)
    yield {"first": made.run(1), "loss": made.run(COMPARED - 1), "ready_s": time.monotonic() - started}
    about = timed(made, 3)
    count = max(1, math.ceil(options.seconds * 1e6 / about))
    windows = [timed(made, count) for _ in range(WINDOWS)]
    yield {"us": statistics.median(windows), "windows": windows, "steps": count}
    if on_gpu:
        yield {"peak": torch.cuda.max_memory_allocated() if peak is None else peak.stop()}
    if options.profiles and contender == OURS:
        profile = made.run.step.profile(5)  # pyright: ignore[reportFunctionMemberAccess]
        (options.profiles / f"{name.replace(':', '-')}.txt").write_text(profile.table("plan") + "\n")
    if options.certify and contender == OURS:
        yield made.run.certified()  # pyright: ignore[reportFunctionMemberAccess]


def measurements(options: argparse.Namespace) -> Iterator[tuple[str, str, Part]]:
    """Row, contender, and what was found, one after the other."""
    end = time.monotonic() + options.budget
    for row in options.rows:
        for name in options.contenders:
            found: Part = {}
            if (left := end - time.monotonic()) <= 0:
                found = {"skipped": f"the budget of {options.budget:.0f} s is spent"}
            for part in (
                in_child(partial(parts_of, row, name, options), min(options.limit, left)) if left > 0 else ()
            ):
                found |= part
            yield row, name, found


def is_off(row: Row, found: Mapping[str, Part]) -> bool:
    """True if AICF trains something else than its peers."""
    off, losses = (
        loss_off(found, OURS),
        [part["loss"] for name, part in found.items() if name != OURS and "loss" in part],
    )
    if off is None:
        return False
    expected = statistics.median(losses)
    near = abs(found[OURS]["loss"] - expected) <= NEAR["drawn" if row.drawn else row.precision] * abs(
        expected
    )
    return not near and not off <= ALLOWED[row.precision]


def line_of(row: str, name: str, found: Part) -> str:
    said = [f"{found['us']:.1f} µs a step"] if "us" in found else []
    if "loss" in found:
        said.append(f"loss {found['first']:.5f} → {found['loss']:.5f}, ready in {found['ready_s']:.1f} s")
    if "peak" in found:
        said.append(f"{cell(found['peak'] / 1e6, '.0f')} MB")
    if "certified" in found:
        said.append(f"its certificate is equal, {RUNS} runs have the same bits")
    said += [f"{kind}: {found[kind]}" for kind in ("error", "skipped") if kind in found]
    return f"{row} {name}: {'; '.join(said)}"


def named(table: Mapping[str, object]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        if unknown := [name for name in text.split(",") if name not in table]:
            raise argparse.ArgumentTypeError(f"there are {', '.join(table)}; got {', '.join(unknown)}")
        return [name for name in table if name in text.split(",")]

    return names


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"rows: {', '.join(ROWS)}",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes of a few elements")
    parser.add_argument("--rows", type=named(ROWS), default=list(ROWS), metavar="ROW,…")
    parser.add_argument("--contenders", type=named(CONTENDERS), default=list(CONTENDERS), metavar="NAME,…")
    parser.add_argument(
        "--tune", action="store_true", help="AICF runs the kernels that aicf-tune measures first"
    )
    parser.add_argument(
        "--schedules", action="store_true", help="with --tune also schedules of generated kernels"
    )
    parser.add_argument(
        "--certify", action="store_true", help="AICF's captured step against plan, eager, model"
    )
    parser.add_argument("--seconds", type=float, default=0.3, help="of a window")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for one contender in one row")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds for all of it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="written after each measurement")
    parser.add_argument(
        "--profiles", type=Path, metavar="FOLDER", help="of AICF's launches, a file for each row"
    )
    options = parser.parse_args()
    if options.profiles:
        options.profiles.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Part]] = {row: {} for row in options.rows}
    for row, name, found in measurements(options):
        rows[row][name] = found
        print(line_of(row, name, found), flush=True)
        if options.json:
            options.json.write_text(json.dumps({"rows": rows}, indent=1))
    print(f"\n{describe_machine(options.device)}\n\n{table(rows, options.contenders)}")
    failed = [
        row for row, found in rows.items() if "error" in found.get(OURS, {}) or is_off(ROWS[row], found)
    ]
    if failed:
        print(f"\nAICF failed, or trained something else: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

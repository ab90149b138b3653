"""The train steps of eight MLPs on a GPU (forward, MSE, backward, Adam): AICF beside its peers, in one run.

    python bench/rows_gpu.py [--rows 64x256x2:f32,…] [--contenders aicf,jax,…] [--seconds 0.3] [--budget 400]
    python bench/rows_gpu.py --json FILE --profiles FOLDER   # all that was measured; AICF launch by launch
    python bench/rows_gpu.py --contenders aicf --certify --limit 400    # the certificate of each captured step
    python bench/rows_gpu.py --device cpu                    # small rows: whether everything runs

A row is batch x width x layers and a precision: bf16 and f16 compute by the rules of torch.autocast on weights of f32,
f16 without a scale of the loss; f32 is without TF32. All contenders do the same work from the same weights, and their
losses after 100 steps are compared. Each measurement is the median of five windows, synchronised at both ends, in a
process of its own with a time limit; AICF comes first and torch.compile last, and what no longer fits into the budget
of seconds is skipped, which a line says. The table comes last: microseconds a step, how far AICF's loss is from the
peers' as a part of what it has fallen, and the most memory at once. The exit status is 1 where AICF failed, trained
something else than its peers, or has a certificate that differs: that interprets the step on the host, in gigabytes and
minutes where rows are large.

    aicf     `replay(n)`                            jax   JAX jit with donated state
    eager    torch with its fused optimizer         scan  the same, 100 steps in one lax.scan
    graph    the same, the step in one CUDA graph   compile  torch.compile, the step in one CUDA graph

    aicf+tuned   by the kernels that aicf-tune finds fastest      aicf+serial   with AICF_BRANCHES=0: without branches
    aicf+own     with AICF_CUBLASLT=0: without that library       aicf+full     with AICF_PDL=0: edges of the full kind
    aicf+batch   `replay(inputs=batch)` for each step: the batch is copied in and cast, as the parameters are, each time
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import torch
from aicf_step import captured_step, tuned_step
from contender import Contender, describe_machine, repeat, timed
from in_child import Part, in_child
from jax_peer import jax_peer
from peak import Peak
from rows_table import OURS, differing, is_ours, table
from torch_peers import Step, compiled_step, eager_step, graph_step
from workloads import Batch, Workload, mlp_row, on_device

from aicf_mlir.step.compiled_step import CompiledTrainStep

ROWS = {
    "cuda": (
        "64x256x2:f32",
        "64x256x2:bf16",
        "1024x1024x4:f32",
        "1024x1024x4:tf32",
        "1024x1024x4:bf16",
        "8192x4096x4:bf16",
        "262144x128x4:bf16",
        "262144x64x4:f16",
    ),
    "cpu": ("64x32x2:f32", "64x32x2:bf16"),
}
COMPARED = 100
"""Steps after which the losses are compared, and in one `lax.scan`."""
WINDOWS = 5
PROFILED = 20
"""Steps with marks between the launches, and as many without."""


def measured(contender: Contender, seconds: float) -> Iterator[Part]:
    """Losses, then microseconds a step."""
    if contender.stride == 1:
        first = contender.run(1)
        yield {"first": first, "loss": contender.run(COMPARED - 1)}
    else:
        yield {"loss": contender.run(COMPARED)}
    about = timed(contender, max(10, contender.stride))
    count = contender.stride * max(1, math.ceil(seconds * 1e6 / about / contender.stride))
    windows = [timed(contender, count) for _ in range(WINDOWS)]
    yield {"us": statistics.median(windows), "windows": windows, "steps": count}


def torch_peak(device: str) -> int | None:
    """The most bytes that torch has had allocated at once in this process."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else None


def aicf(
    name: str,
    make: Callable[[Workload, Batch, str], tuple[CompiledTrainStep, str]],
    variables: Mapping[str, str],
    workload: Workload,
    batch: Batch,
    options: argparse.Namespace,
    loads: bool = False,
) -> Iterator[Part]:
    """`replay(n)`, with `loads` `replay(inputs=batch)` n times, and the launches alone; these variables in the environment."""
    if variables and options.device != "cuda":
        raise ValueError(f"{' and '.join(variables)} need --device cuda")
    os.environ.update(variables)
    peak = Peak() if options.device == "cuda" else None
    step, note = make(workload, batch, options.device)
    yield {"note": note, "kernels": list(step.executed_kernels())}
    given = on_device(batch, options.device) if loads else None
    many = Contender("AICF", lambda n: replayed(step, n, given), ours=True)
    yield from measured(many, options.seconds)
    yield {"peak": step.memory_report().peak if peak is None else peak.stop()}
    if options.profiles:
        profile = step.profile(PROFILED)
        path = options.profiles / f"{options.row}-{name}".replace(":", "-")
        profile.save_json(path.with_suffix(".json"))
        path.with_suffix(".txt").write_text(profile.table("plan") + "\n")
        yield {"launches": profile.marked * 1e6, "profiled": profile.seconds * 1e6}
    if options.certify:
        step.reset()
        step.warmup(step.inputs)
        certificate = step.capture(step.inputs, verify="bitwise", steps=1)
        yield {"equal": certificate.equal, "certificate": str(certificate)}


def replayed(step: CompiledTrainStep, n: int, batch: Batch | None) -> float:
    """The loss of the last of n steps, each of which loads the batch if there is one."""
    if batch is None:
        return float(step.replay(n, sync=True))
    for _ in range(n - 1):
        step.replay(inputs=batch)
    return float(step.replay(inputs=batch, sync=True))


def by_torch(
    make: Callable[[Workload, Batch, str], Step],
    workload: Workload,
    batch: Batch,
    options: argparse.Namespace,
) -> Iterator[Part]:
    step = make(workload, batch, options.device)
    yield from measured(Contender("torch", partial(repeat, step)), options.seconds)
    yield {"peak": torch_peak(options.device)}


def graph(workload: Workload, batch: Batch, device: str) -> Step:
    if device != "cuda":
        raise ValueError("a CUDA graph needs --device cuda")
    return graph_step(workload, batch)


def compiled(workload: Workload, batch: Batch, device: str) -> Step:
    """In a CUDA graph where there is one."""
    if device == "cuda":
        return graph_step(workload, batch, compiled=True)
    return compiled_step(workload, batch, fused=True)


def by_jax(scanned: int, workload: Workload, batch: Batch, options: argparse.Namespace) -> Iterator[Part]:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ["JAX_PLATFORMS"] = options.device  # rather fail than run on another device
    import jax

    yield {"jax": jax.__version__}
    yield from measured(jax_peer(workload, batch, scanned), options.seconds)
    yield {"peak": (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")}


CONTENDERS: Mapping[str, Callable[[Workload, Batch, argparse.Namespace], Iterator[Part]]] = {
    OURS: partial(aicf, OURS, captured_step, {}),
    f"{OURS}+tuned": partial(aicf, f"{OURS}+tuned", tuned_step, {}),
    f"{OURS}+serial": partial(aicf, f"{OURS}+serial", captured_step, {"AICF_BRANCHES": "0"}),
    f"{OURS}+full": partial(aicf, f"{OURS}+full", captured_step, {"AICF_PDL": "0"}),
    f"{OURS}+own": partial(aicf, f"{OURS}+own", captured_step, {"AICF_CUBLASLT": "0"}),
    f"{OURS}+batch": partial(aicf, f"{OURS}+batch", captured_step, {}, loads=True),
    "eager": partial(by_torch, eager_step),
    "graph": partial(by_torch, graph),
    "jax": partial(by_jax, 1),
    "scan": partial(by_jax, COMPARED),
    "compile": partial(by_torch, compiled),
}
"""In the order in which they run, each through all rows."""


def parts_of(row: str, name: str, options: argparse.Namespace) -> Iterator[Part]:
    """One contender in one row, in the process of its own."""
    workload = workload_of(row)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = workload.precision == "tf32"
    options = argparse.Namespace(**vars(options), row=row)
    yield from CONTENDERS[name](workload, workload.batch(), options)


def workload_of(row: str) -> Workload:
    """Raises ArgumentTypeError for what is no row."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+):(f32|tf32|bf16|f16)", row)
    if not found:
        raise argparse.ArgumentTypeError(
            f"a row is BATCHxWIDTHxLAYERS:PRECISION with f32, tf32, bf16 or f16, as 64x256x2:bf16, got {row!r}"
        )
    *sizes, precision = found.groups()
    return mlp_row(*map(int, sizes), precision=precision)


def workloads_of(rows: str) -> list[str]:
    """Of a text with commas."""
    found = rows.split(",")
    for row in found:
        workload_of(row)
    return found


def contenders_of(names: str) -> list[str]:
    """In the order in which they run. Raises ArgumentTypeError for a name that is none."""
    asked = names.split(",")
    if unknown := set(asked) - set(CONTENDERS):
        raise argparse.ArgumentTypeError(
            f"the contenders are {', '.join(CONTENDERS)}, got {', '.join(sorted(unknown))}"
        )
    return [name for name in CONTENDERS if name in asked]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=list(ROWS), default="cuda")
    parser.add_argument("--rows", type=workloads_of, metavar="ROW,…")
    parser.add_argument("--contenders", type=contenders_of, metavar="NAME,…")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a window")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one contender in one row")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds for all of it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="written anew behind each measurement")
    parser.add_argument(
        "--profiles", type=Path, metavar="FOLDER", help="of AICF's launches, a file for each row"
    )
    parser.add_argument(
        "--certify", action="store_true", help="AICF's captured step against plan, eager and model"
    )
    options = parser.parse_args()
    options.rows = options.rows or list(ROWS[options.device])
    options.contenders = options.contenders or [
        name for name in CONTENDERS if options.device == "cuda" or "+" not in name
    ]
    return options


def measurements(options: argparse.Namespace) -> Iterator[tuple[str, str, Part]]:
    """Row, contender, and what was found, one after the other."""
    started = time.monotonic()
    for name in options.contenders:
        for row in options.rows:
            before = time.monotonic()
            left = options.budget - (before - started)
            if left <= 0:
                yield row, name, {"skipped": f"the budget of {options.budget:.0f} s is spent"}
                continue
            found: Part = {}
            for part in in_child(partial(parts_of, row, name, options), min(options.limit, left)):
                found |= part
            yield row, name, found | {"took_s": time.monotonic() - before}


def line_of(row: str, name: str, found: Part) -> str:
    said = [f"{found['us']:.1f} µs a step"] if "us" in found else []
    said += [found["note"]] if found.get("note") else []
    said += (
        [found["certificate"] if not found["equal"] else "its certificate is equal"]
        if "equal" in found
        else []
    )
    said += [f"{key}: {found[key]}" for key in ("error", "skipped") if key in found]
    return f"{row} {name}: {', '.join(said)}"


def main() -> int:
    options = arguments()
    machine: Part = {}
    for part in in_child(lambda: iter([{"machine": describe_machine(options.device)}]), options.limit):
        machine |= part
    if "error" in machine:
        raise SystemExit(f"no device {options.device}: {machine['error']}")
    print(machine["machine"], flush=True)
    if options.profiles:
        options.profiles.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Part]] = {row: {} for row in options.rows}
    for row, name, found in measurements(options):
        rows[row][name] = found
        print(line_of(row, name, found), flush=True)
        if options.json:
            document = {**machine, "seconds": options.seconds, "compared": COMPARED, "rows": rows}
            options.json.write_text(json.dumps(document, indent=2) + "\n")
    ours = [part for found in rows.values() for name, part in found.items() if is_ours(name)]
    failed = any("error" in part or not part.get("equal", True) for part in ours)
    for row, found in rows.items():
        for name in differing(found, workload_of(row).precision):
            print(
                f"{row} {name}: its loss after {COMPARED} steps is {found[name]['loss']:.6g}, not the peers'"
            )
            failed |= is_ours(name)
    print(table(rows, options.contenders))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

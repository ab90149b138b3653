"""Seconds of `compile_train_step`: of real models cold and warm, by stage, and by number of layers.

    python bench/compile_time.py [--models readme gpt2 hf-128 hf-1024] [--layers 3 6 12 24 48] [--repeat 2] [--device cuda]

Every measurement is a process of its own, which has imported torch, what torch.export puts off, and aicf_mlir. "cold" is one
with an empty folder of compiled kernels, "warm" one that finds there what another has left. Of several the best is shown: the
work is always the same, and what else the machine does only adds to it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor, nn
from workloads import Gpt, token_loss, tokens

Case = tuple[nn.Module, dict[str, Tensor], Callable[[Any, dict[str, Tensor]], Tensor]]
"""A model, a batch and the loss."""

GPT2 = (50257, 1024, 768)
"""Vocabulary, block and width as published."""


def readme() -> Case:
    """The model of README.md."""
    net = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10))
    batch = {"image": torch.randn(16, 64), "label": torch.randint(10, (16,))}
    return net, batch, lambda m, b: nn.functional.cross_entropy(m(b["image"]), b["label"])


def gpt(classes: int, time: int, width: int, layers: int) -> Case:
    """The GPT of `workloads.py`, one sequence."""
    batch = tokens(1, time, classes)
    return Gpt(classes, time, width, layers), batch, lambda m, b: token_loss(m(b["x"]), b["t"])


def hugging_face(time: int) -> Case:
    """GPT-2 of the package transformers as published, dropout included, with random weights; one sequence."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import_module("tests.real.torchvision_ops").declare()
    transformers: Any = import_module("transformers")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    return model, tokens(1, time, GPT2[0]), lambda m, b: token_loss(m(b["x"]).logits, b["t"])


MODELS: dict[str, Callable[[], Case]] = {
    "readme": readme,
    "gpt2": lambda: gpt(*GPT2, 12),
    "hf-128": lambda: hugging_face(128),
    "hf-1024": lambda: hugging_face(1024),
}


def case_of(name: str) -> Case:
    """A row of `MODELS`, or `layers:N`: a narrow GPT of N layers."""
    kind, _, layers = name.partition(":")
    return gpt(100, 16, 32, int(layers)) if kind == "layers" else MODELS[name]()


def measure(name: str, device: str) -> dict[str, float]:
    """One compilation under AdamW: its wall time, its CPU time, and that by activity.

    On a GPU compilation ends with the first step and its capture, without which nothing runs.
    """
    from aicf_mlir import compile_train_step, stages
    from aicf_mlir.ir.verify import Verifier
    from aicf_mlir.step import request

    for module in ("torch.export._trace", "torch._functorch.aot_autograd"):
        import_module(module)
    found: dict[str, float] = {}

    def timed(owner: Any, name: str, row: str) -> None:
        """Count the time of `owner.name` for `row`."""
        inner: Callable[..., Any] = getattr(owner, name)

        def outer(*arguments: Any, **named: Any) -> Any:
            start = process_time()
            try:
                return inner(*arguments, **named)
            finally:
                found[row] = found.get(row, 0.0) + process_time() - start

        setattr(owner, name, outer)

    timed(torch.export, "export", "torch.export")
    timed(torch.export.ExportedProgram, "run_decompositions", "torch.export")
    timed(request, "trace", "trace, ours")
    timed(Verifier, "__call__", "verification")
    timed(request, "load_program", "binding")
    timed(request, "bind_step", "binding")
    run_passes: Callable[..., None] = stages.run_passes
    rows = iter(stages.STAGE_NAMES)

    def staged(context: Any, module: Any, passes: Any, **named: Any) -> None:
        start, verified = process_time(), found.get("verification", 0.0)
        run_passes(context, module, passes, **named)
        spent = process_time() - start - (found.get("verification", 0.0) - verified)
        found[f"stage {next(rows)}"] = spent

    stages.run_passes = staged
    model, batch, loss = case_of(name)
    model, batch = model.to(device), {key: x.to(device) for key, x in batch.items()}
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start, begin = process_time(), perf_counter()
    step = compile_train_step(model, adamw, device=device, example=batch, loss_fn=loss)
    if device == "cuda":
        compiled = process_time()
        step.warmup(batch)
        step.capture(batch)
        found["first step and capture"] = process_time() - compiled
    total, wall = process_time() - start, perf_counter() - begin
    found["trace, ours"] -= found["torch.export"]
    return {"wall": wall, "CPU": total, **found, "other": total - sum(found.values())}


def in_a_process(name: str, device: str, cache: str) -> dict[str, float]:
    """`measure` in a fresh process, with a folder for compiled kernels."""
    command = [sys.executable, __file__, "--device", device, "--one", name]
    environment = {**os.environ, "AICF_CACHE_DIR": cache}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def cold_and_warm(name: str, device: str, repeat: int) -> tuple[dict[str, float], dict[str, float]]:
    """The best of `repeat` processes each."""
    colds: list[dict[str, float]] = []
    warms: list[dict[str, float]] = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as cache:
            colds.append(in_a_process(name, device, cache))
            warms.append(in_a_process(name, device, cache))
    return min(colds, key=lambda one: one["CPU"]), min(warms, key=lambda one: one["CPU"])


def print_table(title: str, columns: dict[str, dict[str, float]]) -> None:
    """A row for each activity, a column for each measurement."""
    print(f"\n| {title} | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns))
    for row in next(iter(columns.values())):
        print(f"| {row} | " + " | ".join(f"{found.get(row, 0.0):.3f}" for found in columns.values()) + " |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of the models and one of the numbers of layers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="*", choices=MODELS, default=["readme", "gpt2"])
    parser.add_argument("--layers", type=int, nargs="*", default=[3, 6, 12, 24, 48])
    parser.add_argument("--repeat", type=int, default=2, help="processes for each column")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--one", help="measure one model here and print JSON")
    options = parser.parse_args(arguments)
    if options.one is not None:
        print(json.dumps(measure(options.one, options.device)))
        return
    columns: dict[str, dict[str, float]] = {}
    for name in options.models:
        columns[f"{name}, cold"], columns[f"{name}, warm"] = cold_and_warm(
            name, options.device, options.repeat
        )
    if columns:
        print_table("seconds", columns)
    if options.layers:
        narrow = {
            str(n): cold_and_warm(f"layers:{n}", options.device, options.repeat)[1] for n in options.layers
        }
        print_table("seconds, layers", narrow)


if __name__ == "__main__":
    main()

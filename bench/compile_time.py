"""CPU seconds of `compile_train_step` by number of layers: in all, of torch.export, of each stage, of verification.

    python bench/compile_time.py [--layers 2 48 200] [--width 8] [--repeat 3]

Every measurement is a process of its own, after all imports, those that torch.export puts off included. The best of
several is shown: the work is always the same, and what else the machine does only adds to it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from time import process_time
from typing import Any

BATCH = 64


def measure(layers: int, width: int) -> dict[str, float]:
    """One compilation of Linear(width, width) layers with ReLU between, under Adam, by activity."""
    import torch

    import aicf_mlir.compile as compiler
    from aicf_mlir import stages
    from aicf_mlir.ir import verify

    for name in ("torch.export._trace", "torch._functorch.aot_autograd"):
        import_module(name)
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
    timed(compiler, "trace", "trace")
    timed(verify, "verify_module", "verify")
    timed(compiler, "load_program", "bind")
    timed(compiler, "bind_step", "bind")
    names = {  # by the first pass
        stages.parse_passes(stage.pass_list("cpu"))[0].name: stage.name  # imports them, too
        for stage in stages.STAGES
    }
    run_passes: Callable[..., None] = stages.run_passes

    def staged(context: Any, module: Any, passes: Any, **named: Any) -> None:
        start, verified = process_time(), found.get("verify", 0.0)
        run_passes(context, module, passes, **named)
        spent = process_time() - start - (found.get("verify", 0.0) - verified)
        found[names[passes[0].name]] = spent

    stages.run_passes = staged
    modules: list[torch.nn.Module] = []
    for _ in range(layers):
        modules += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    model = torch.nn.Sequential(*modules[:-1])
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = process_time()
    compiler.compile_train_step(model, adam, B=BATCH, D=width, device="cpu", dtype=torch.float32)
    total = process_time() - start
    found["trace"] -= found["torch.export"]
    return {"total": total, **found, "other": total - sum(found.values())}


def in_a_process(layers: int, width: int) -> dict[str, float]:
    """`measure` in a fresh process."""
    command = [sys.executable, __file__, "--one", str(layers), "--width", str(width)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print one line for each activity and one column for each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 48, 200])
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3, help="processes for each model")
    parser.add_argument("--one", type=int, help="measure one model here and print JSON")
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.one, options.width)))
        return
    columns = [
        min((in_a_process(n, options.width) for _ in range(options.repeat)), key=lambda found: found["total"])
        for n in options.layers
    ]
    print("| CPU seconds, layers | " + " | ".join(map(str, options.layers)) + " |")
    print("|---|" + "---|" * len(columns))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(f"{column.get(name, 0.0):.3f}" for column in columns) + " |")


if __name__ == "__main__":
    main()

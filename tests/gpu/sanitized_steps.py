"""Runs whole small train steps, eager, captured and replayed, for compute-sanitizer: kernels in the plans that use them.

    AICF_CUBLASLT=0 compute-sanitizer --tool racecheck python tests/gpu/sanitized_steps.py [--only TEXT]

What they compute is judged by the tests; this only runs them. Without the library every product is one of our own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from aicf_mlir import compile_train_step
from aicf_mlir.frontend.precision import PrecisionName


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n, (before, behind) in enumerate(pairwise(widths)):
        layers += [nn.ReLU()] * (n > 0) + [nn.Linear(before, behind)]
    return nn.Sequential(*layers)


STEPS: dict[str, tuple[Callable[[], nn.Sequential], int, PrecisionName | None]] = {
    "small f32": (lambda: mlp(64, 64, 64), 64, None),
    "small bf16": (lambda: mlp(64, 64, 64), 64, "bf16"),
    "small tf32": (lambda: mlp(64, 64, 64), 64, "tf32"),
    "small f16, ragged": (lambda: mlp(20, 36, 12), 30, "f16"),
    "odd": (lambda: mlp(17, 33, 5), 21, None),
    "normed": (
        lambda: nn.Sequential(nn.Linear(32, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 32)),
        40,
        None,
    ),
    "groups of warps": (lambda: mlp(512, 512, 512), 512, None),
    "chain": (lambda: mlp(64, 64, 64), 1 << 15, "bf16"),
    "chain, sums divided": (lambda: mlp(128, 128, 128, 128), 1 << 15, "bf16"),
}
"""By name: a model, rows of a batch, a precision."""


def run(name: str) -> None:
    make, rows, precision = STEPS[name]
    torch.manual_seed(0)
    model = make().cuda()
    x = torch.randn(rows, next(model.parameters()).shape[1]).cuda()
    with torch.no_grad():
        batch = {"x": x, "t": torch.randn_like(model(x))}
    step = compile_train_step(
        model,
        torch.optim.Adam(model.parameters(), lr=1e-3),
        loss_fn=lambda net, given: functional.mse_loss(net(given["x"]), given["t"]),
        example=batch,
        device="cuda",
        precision=precision,
        loss_scale=None,
    )
    step.train_step(batch)
    step.capture(batch)
    loss = float(step.replay(3, sync=True))
    print(f"{name}: loss {loss:.4f}, {', '.join(step.executed_kernels())}")
    step.close()


def main() -> None:
    """Run the steps whose name contains the text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="steps whose name contains this text")
    only = parser.parse_args().only
    chosen = [name for name in STEPS if only in name]
    if not chosen:
        raise SystemExit(f"no step is called like {only!r}: there are {', '.join(STEPS)}")
    for name in chosen:
        run(name)


if __name__ == "__main__":
    main()

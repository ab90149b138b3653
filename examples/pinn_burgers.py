"""Solve Burgers' equation, u_t + u u_x = ν u_xx, by a physics-informed network: Adam first, L-BFGS then, all compiled.

The solution starts as -sin(πx) and gets steep at x = 0. At the end it is held against the exact one, which is known as an
integral, and drawn into an SVG file.
"""

from __future__ import annotations

import argparse
import math
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

from aicf_mlir import compile_eval_step, compile_train_step, default_device

VISCOSITY = 0.05 / math.pi
TIMES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""When the solution is drawn."""

Batch = dict[str, torch.Tensor]


def slope(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The derivative of each row of y by its row of x."""
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    """How far the equation, the start and the edges are missed."""
    x, t = batch["x"].requires_grad_(), batch["t"].requires_grad_()
    u = model(torch.cat([x, t], 1))
    u_x = slope(u, x)
    residual = slope(u, t) + u * u_x - VISCOSITY * slope(u_x, x)
    start = model(torch.cat([x, torch.zeros_like(t)], 1)) + torch.sin(math.pi * x)
    edge = model(torch.cat([torch.sign(x), t], 1))
    return residual.square().mean() + start.square().mean() + edge.square().mean()


def exact(x: np.ndarray, t: float) -> np.ndarray:
    """The solution by Cole and Hopf: a quotient of two integrals, by Gauss and Hermite's rule."""
    if t == 0:
        return -np.sin(np.pi * x)
    nodes, weights = np.polynomial.hermite.hermgauss(100)
    at = x[:, None] - 2 * math.sqrt(VISCOSITY * t) * nodes
    weights = weights * np.exp(-np.cos(np.pi * at) / (2 * np.pi * VISCOSITY))
    return -(weights * np.sin(np.pi * at)).sum(1) / weights.sum(1)


@torch.no_grad()
def solution(model: nn.Module, x: np.ndarray, t: float, device: torch.device) -> np.ndarray:
    """The network's values at these places."""
    places = torch.tensor(np.stack([x, np.full_like(x, t)], 1), dtype=torch.float32, device=device)
    return model(places)[:, 0].cpu().numpy()


def drawn(curves: list[tuple[float, np.ndarray, np.ndarray]], x: np.ndarray) -> str:
    """An SVG picture: for each time the network's values as a line, the exact ones as dots."""
    width, height, margin = 640, 360, 40

    def place(at: float, u: float) -> str:
        return f"{margin + (at + 1) / 2 * (width - 2 * margin):.1f},{margin + (1 - u) / 2 * (height - 2 * margin):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<polyline points="{place(-1, 0)} {place(1, 0)}" stroke="#999"/>',
        f'<text x="{width / 2}" y="{height - 12}" text-anchor="middle">x, from -1 to 1</text>',
        '<text x="12" y="20">u; lines: the network, dots: exact</text>',
    ]
    for number, (t, found, wanted) in enumerate(curves):
        color = f"hsl({220 + 35 * number}, 70%, 45%)"
        line = " ".join(place(*point) for point in zip(x.tolist(), found.tolist(), strict=True))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        for at, u in list(zip(x.tolist(), wanted.tolist(), strict=True))[::8]:
            cx, cy = place(at, u).split(",")
            parts.append(f'<circle cx="{cx}" cy="{cy}" r="2" fill="{color}"/>')
        parts.append(f'<text x="{width - 80}" y="{40 + 16 * number}" fill="{color}">t = {t:g}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=default_device(), help="cpu or cuda (default: CUDA where usable)")
    parser.add_argument("--steps", type=int, default=2000, help="of Adam; a tenth as many of L-BFGS follow")
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("-o", type=Path, help="an SVG file for the solution")
    options = parser.parse_args()
    device = torch.device(options.device)

    torch.manual_seed(0)
    sizes = (2, 32, 32, 32)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
    net = nn.Sequential(*layers, nn.Linear(32, 1)).to(device)

    def points() -> Batch:
        x, t = torch.rand(2, options.points, 1, device=device)
        return {"x": 2 * x - 1, "t": t}

    batch = points()
    adam = torch.optim.Adam(net.parameters(), lr=2e-3)
    step = compile_train_step(net, adam, loss_fn=loss_of, example=batch, device=device)
    step.warmup(batch)
    step.capture(batch)
    started = time.perf_counter()
    for _ in range(options.steps):
        loss = step.replay(inputs=points())
    print(
        f"Adam: loss {loss.item():.2e}, {(time.perf_counter() - started) / options.steps * 1e3:.2f} ms a step"
    )

    closure = compile_eval_step(net, loss_fn=loss_of, example=batch, device=device, keep_gradients=True)
    lbfgs = torch.optim.LBFGS(net.parameters(), max_iter=options.steps // 10, line_search_fn="strong_wolfe")
    lbfgs.step(lambda: closure.eval_step(batch))  # all of its steps are on the same points
    print(f"L-BFGS: loss {closure.eval_step(batch).item():.2e}")

    x = np.linspace(-1, 1, 201)
    curves = [(t, solution(net, x, t, device), exact(x, t)) for t in TIMES]
    found, wanted = (np.stack([curve[i] for curve in curves]) for i in (1, 2))
    print(f"error {np.linalg.norm(found - wanted) / np.linalg.norm(wanted):.4f} of the exact solution")
    if options.o is not None:
        options.o.write_text(drawn(curves, x))


if __name__ == "__main__":
    main()

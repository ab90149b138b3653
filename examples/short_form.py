"""The short form, whole: `python examples/short_form.py --device cuda` (or cpu)."""

from __future__ import annotations

import argparse

import torch

from aicf_mlir.nn import Linear, ReLU, Sequential
from aicf_mlir.optim import Adam

B, D = 64, 256


def main() -> None:
    """Train on one batch: an eager step, then the captured step a thousand times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    device: str = parser.parse_args().device
    x, t = torch.randn(B, D, device=device), torch.randn(B, D, device=device)

    model = Sequential(Linear(D, D), ReLU(), Linear(D, D)).to(device)
    opt = Adam(model, lr=1e-3)
    model.compile(optimizer=opt, B=B, D=D, device=device, dtype=torch.float32)
    first = float(model.train_step({"x": x, "t": t}))
    model.capture({"x": x, "t": t})
    last = float(model.replay(n=1000, sync=True))

    print(f"loss {first:.4f} after one step, {last:.4f} after a thousand more")
    assert last < first / 10, "the loss did not fall"


if __name__ == "__main__":
    main()

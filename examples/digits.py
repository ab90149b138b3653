"""Train a digit classifier through every stage of AICF, then show what ran.

An MLP on scikit-learn's 8×8 digits with cross-entropy and AdamW: the whole step (forward, loss, backward, optimizer) is
captured once and replayed for every batch, while a learning-rate scheduler of torch drives it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR

from aicf_mlir import compile_train_step, default_device
from aicf_mlir.nn import Linear, ReLU, Sequential
from aicf_mlir.optim import AdamW

BATCH = 64
STAGES = ("nn", "grad", "step", "lowered", "fused", "kernel", "plan")


def load(device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images [n, 64], test images, training labels [n], test labels; pixels scaled to 0…1."""
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(pixels / 16.0, labels, test_size=0.2, random_state=0, stratify=labels)
    x, x_test, y, y_test = (torch.tensor(part, device=device) for part in parts)
    return x.float(), x_test.float(), y.long(), y_test.long()


def accuracy(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Share of right answers; the model is an ordinary torch module and sees every update."""
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=default_device(), help="cpu or cuda (default: CUDA where usable)")
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    device = torch.device(options.device)

    torch.manual_seed(0)
    x, x_test, y, y_test = load(device)
    model = Sequential(Linear(64, 256), ReLU(), Linear(256, 128), ReLU(), Linear(128, 10)).to(device)
    optimizer = AdamW(model, lr=3e-3, weight_decay=5e-2)
    scheduler = CosineAnnealingLR(optimizer, options.epochs)

    started = time.perf_counter()
    step = compile_train_step(
        model,
        optimizer,
        loss_fn=lambda net, batch: cross_entropy(net(batch["image"]), batch["label"], label_smoothing=0.1),
        example={"image": x[:BATCH], "label": y[:BATCH]},
        device=device,
        name="digits",
    )
    print(
        f"compiled for {device} in {time.perf_counter() - started:.2f} s, {len(step.planned_kernels())} launches a step"
    )

    first = {"image": x[:BATCH], "label": y[:BATCH]}
    step.warmup(first)
    step.capture(first)
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(x), device=device)
        started, loss, batches = time.perf_counter(), torch.zeros((), device=device), 0
        for index in order.split(BATCH):
            if len(index) == BATCH:
                loss += step.replay(inputs={"image": x[index], "label": y[index]})
                batches += 1
        scheduler.step()
        if epoch == 1 or epoch % 5 == 0:
            mean, seconds = loss.item() / batches, time.perf_counter() - started
            shown = accuracy(model, x_test, y_test)
            print(
                f"epoch {epoch:3d}  loss {mean:.4f}  test accuracy {shown:6.1%}  "
                f"{1e6 * seconds / batches:7.0f} µs a batch",
                flush=True,
            )

    print("\nthe pipeline, ops by stage")
    for stage in STAGES:
        print(f"  {stage:<8} {describe(step.ir(stage))}")
    print("\nthe kernels that ran, in order")
    for kernel in step.executed_kernels():
        print(f"  {kernel}")
    print(f"\nthe memory plan\n{step.memory_report()}")
    print(f"\ntest accuracy {accuracy(model, x_test, y_test):.2%}")


def describe(text: str) -> str:
    """Op counts of a stage's text, most frequent first."""
    words = (word for line in text.splitlines() for word in line.split() if "." in word)
    counts = Counter(w for w in words if w.partition(".")[0] in ("nn", "optim", "kernel", "plan"))
    listing = ", ".join(f"{op} {count}" for op, count in counts.most_common(6))
    return f"{sum(counts.values()):3d}: {listing}" + (", …" if len(counts) > 6 else "")


if __name__ == "__main__":
    main()

"""Several processes train one model on handwritten digits, each with its own part of every batch, and a GPU where there is one.

torchrun --nproc-per-node 2 examples/data_parallel.py --epochs 10
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from aicf_mlir import compile_train_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    epochs: int = parser.parse_args().epochs

    dist.init_process_group("gloo")  # GPUs exchange among themselves
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    t = torch.tensor(data.target)
    train, test = TensorDataset(x[:1500], t[:1500]), (x[1500:], t[1500:])
    sampler = DistributedSampler(train, seed=0)
    loader = DataLoader(train, 32, sampler=sampler, drop_last=True)

    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = compile_train_step(
        model,
        optimizer,
        loss_fn=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
        example=next(iter(loader)),
        device=device,
        mesh=dist.group.WORLD,
    )
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = step.train_step(batch)
        if dist.get_rank() == 0:
            right = (model(test[0].to(device)).argmax(1).cpu() == test[1]).float().mean()
            print(
                f"epoch {epoch + 1}  loss of rank 0 {float(loss):.4f}  {100 * float(right):.1f} % of the test digits",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

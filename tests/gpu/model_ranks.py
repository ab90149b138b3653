"""The part of data_parallel.py about whole models: GPT-2 and ResNet-50 in f32, of sizes that leave room for f64 beside them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rank_steps import DEVICE, digest_of, synchronize, told
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aicf_mlir import compile_train_step

sys.path.append(str(Path(__file__).parents[2] / "bench"))
from model_rows import ROWS
from models_gpu import optimizer_of

ROW_NAMES = {"gpt2:4": 2, "resnet50:32": 8}
"""The rows, and how many of a batch a rank has."""
STEPS, RUNS, BATCHES = 50, 20, 5
FAR = 3.0
"""How much farther from f64 than DistributedDataParallel in f32 a step of ours may be."""


class Trained:
    """A model of one row, on one rank."""

    def __init__(self, name: str, rank: int):
        rows = ROW_NAMES[name] if DEVICE == "cuda" else 2
        self.case = ROWS[name].of(tiny=DEVICE != "cuda")
        self.rank = rank
        torch.manual_seed(0)
        self.first = self.case.model()
        self.batches = [
            [self.drawn(100 * number + other, rows) for other in range(dist.get_world_size())]
            for number in range(BATCHES)
        ]

    def drawn(self, seed: int, rows: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return {name: x[:rows].to(DEVICE) for name, x in self.case.batch().items()}

    def given(self, number: int) -> dict[str, torch.Tensor]:
        """The batch of this rank."""
        return self.batches[number % BATCHES][self.rank]

    def model(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """With the first weights."""
        fresh = self.case.model()
        fresh.load_state_dict(self.first.state_dict())
        return fresh.to(DEVICE, dtype)

    def by_torch(self, dtype: torch.dtype) -> tuple[list[float], list[torch.Tensor]]:
        """The losses of this rank, and the parameters after all steps, by DistributedDataParallel."""
        module = self.model(dtype)
        wrapped = DistributedDataParallel(module, [torch.cuda.current_device()] if DEVICE == "cuda" else None)
        optimizer, losses = optimizer_of(module), list[float]()
        for number in range(STEPS):
            given = {
                name: x.to(dtype) if x.is_floating_point() else x for name, x in self.given(number).items()
            }
            optimizer.zero_grad()
            loss = self.case.loss(wrapped, given)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.detach().double() for p in module.parameters()]

    def compiled(self, example: Any, **options: Any) -> tuple[nn.Module, Any]:
        module = self.model()
        step = compile_train_step(
            module, optimizer_of(module), loss_fn=self.case.loss, example=example, device=DEVICE, **options
        )
        return module, step

    def runs(self) -> tuple[list[float], list[torch.Tensor], set[str]]:
        """The same of ours, with the digests of parameters and buffers of all runs."""
        module, step = self.compiled(self.given(0), mesh=dist.group.WORLD)
        start, digests, losses = step.snapshot(), set[str](), list[float]()
        for run in range(RUNS):
            step.restore(start)
            made: list[float] = []
            for number in range(STEPS):
                if run == 0 and number == STEPS // 2:
                    step.capture(self.given(number))
                is_replayed = run > 0 or number >= STEPS // 2
                made.append(
                    float(
                        step.replay(inputs=self.given(number))
                        if is_replayed
                        else step.train_step(self.given(number))
                    )
                )
            synchronize()
            losses = losses or made
            assert made == losses, "losses of two runs differ"
            digests.add(digest_of(module.state_dict().values()))
        return losses, [p.detach().double() for p in module.parameters()], digests

    def by_micro_batches(self) -> list[torch.Tensor]:
        """The parameters after the same steps on one GPU."""
        count = len(self.batches[0])
        module, step = self.compiled(self.batches[0], accumulate=count, accumulate_apart=True)
        for number in range(STEPS):
            step.train_step(self.batches[number % BATCHES])
        synchronize()
        return [p.detach().double() for p in module.parameters()]


def far(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """The largest distance of a parameter, in its norm."""
    return max(float((x - y).norm() / y.norm().clamp(min=1e-3)) for x, y in zip(found, exact, strict=True))


def whole_models(rank: int) -> None:
    """50 steps are as near to f64 as DistributedDataParallel's, and so are micro-batches of one GPU; 20 runs have one digest on
    all ranks.
    """
    torch.backends.cudnn.allow_tf32 = False
    for name in ROW_NAMES:
        trained = Trained(name, rank)
        losses, parameters, digests = trained.runs()
        assert len(digests) == 1, f"{name}: runs differ"
        assert len(set(told(next(iter(digests))))) == 1, f"{name}: ranks differ"
        alone = trained.by_micro_batches()
        exact_losses, exact = trained.by_torch(torch.float64)
        torch_losses, by_torch = trained.by_torch(torch.float32)
        off, alone_off, torch_off = (far(each, exact) for each in (parameters, alone, by_torch))
        loss_off, torch_loss_off = (
            max(abs(x - y) for x, y in zip(each, exact_losses, strict=True))
            for each in (losses, torch_losses)
        )
        if rank == 0:
            print(
                f"{name}: {STEPS} steps, {RUNS} runs, one digest, {next(iter(digests))}; from f64 {off:.1e}, DDP in f32"
                f" {torch_off:.1e}, micro-batches {alone_off:.1e}, the same bits: {far(parameters, alone) == 0.0}; losses"
                f" {loss_off:.1e} and {torch_loss_off:.1e} of {exact_losses[0]:.2f} to {exact_losses[-1]:.2f}",
                flush=True,
            )
        assert max(off, alone_off) < FAR * torch_off + 1e-6, name
        assert loss_off < FAR * torch_loss_off + 1e-6, name

"""One train step of several GPUs, beside one GPU alone and beside torch's DistributedDataParallel and FSDP2.

torchrun --nproc-per-node 2 bench/data_parallel.py [--rows mlp gpt2:32] [--seconds 1]

Every rank has a batch of its own, of the row's size. Each time is the median of windows, of which all ranks begin together,
on the slowest rank: GPUs of one host differ, and together they are as slow as it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from model_rows import ROWS, Row
from models_gpu import loss_of, optimizer_of
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformer_models import Batch, Case, class_loss, mlp

from aicf_mlir import compile_train_step

WINDOWS = 7
WIDTH = {"batch": 64, "width": 256, "layers": 2}


def mlp_case(batch: int, width: int, layers: int) -> Case:
    def data() -> Batch:
        return {"x": torch.randn(batch, width), "t": torch.randint(width, (batch,))}

    return Case(partial(mlp, *[width] * (layers + 1)), data, class_loss)


MODELS = {"mlp": Row(mlp_case, WIDTH, {}), **ROWS}
Step = Callable[[], object]


def placed(row: Row, options: argparse.Namespace) -> tuple[Case, nn.Module, Batch]:
    case = row.of(tiny=False)
    torch.manual_seed(0)
    model = case.model().to(options.device)
    torch.manual_seed(1 + dist.get_rank())
    return case, model, {name: x.to(options.device) for name, x in case.batch().items()}


def ours(row: Row, options: argparse.Namespace, **given: Any) -> Any:
    case, model, batch = placed(row, options)
    step = compile_train_step(
        model,
        optimizer_of(model),
        loss_fn=case.loss,
        example=batch,
        device=options.device,
        precision=row.precision,
        **given,
    )
    step.train_step(batch)
    step.capture(batch)
    return step


def by_torch(row: Row, options: argparse.Namespace, wrapped: Callable[[nn.Module], nn.Module]) -> Step:
    case, model, batch = placed(row, options)
    model = wrapped(model)
    optimizer = optimizer_of(model, fused=True)
    loss = torch.compile(partial(loss_of(row, case, options.device), model))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(batch).backward()
        optimizer.step()

    return step


def in_parts(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                fully_shard(layer)
    fully_shard(model)
    return model


def microseconds(step: Callable[[int], object], seconds: float) -> float:
    """Of one step; `step(n)` runs so many."""
    n, took = 1, torch.zeros(())
    while float(took) <= seconds / WINDOWS and n < 1 << 20:
        n *= 2
        torch.cuda.synchronize()
        dist.barrier(group=HOST)
        begun = time.perf_counter()
        step(n)
        torch.cuda.synchronize()
        took = torch.tensor(time.perf_counter() - begun)
        dist.all_reduce(took, op=dist.ReduceOp.MAX, group=HOST)
    found: list[float] = []
    for _ in range(WINDOWS):
        torch.cuda.synchronize()
        dist.barrier(group=HOST)
        begun = time.perf_counter()
        step(n)
        torch.cuda.synchronize()
        found.append((time.perf_counter() - begun) / n * 1e6)
    slowest = torch.tensor(statistics.median(found))
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=HOST)
    return float(slowest)


def repeated(step: Step) -> Callable[[int], None]:
    def run(n: int) -> None:
        for _ in range(n):
            step()

    return run


def contenders(row: Row, options: argparse.Namespace) -> dict[str, Callable[[], Callable[[int], object]]]:
    """What makes each of them ready, and then runs n steps."""
    own = dist.group.WORLD

    def alone() -> Callable[[int], object]:
        return ours(row, options).replay

    def together() -> Callable[[int], object]:
        return ours(row, options, mesh=own).replay

    def one_by_one() -> Callable[[int], object]:
        step = ours(row, options, mesh=own)
        return repeated(step.replay)

    number = torch.cuda.current_device()
    ddp = partial(DistributedDataParallel, device_ids=[number], gradient_as_bucket_view=True)
    return {
        "one GPU": alone,
        "all": together,
        "all, each step called": one_by_one,
        "DDP, compiled": lambda: repeated(by_torch(row, options, ddp)),
        "FSDP2, compiled": lambda: repeated(by_torch(row, options, in_parts)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", default=["mlp", "gpt2:32"], choices=list(MODELS))
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    options.device = "cuda"
    for name in options.rows:
        row, line = MODELS[name], {"row": name, "ranks": dist.get_world_size()}
        for contender, make in contenders(row, options).items():
            if options.only and contender not in options.only:
                continue
            try:
                line[contender] = round(microseconds(make(), options.seconds), 1)
            except Exception as error:  # noqa: BLE001  (a peer that fails is a cell of the table)
                line[contender] = f"{type(error).__name__}: {error}"[:160]
            torch.cuda.empty_cache()
            dist.barrier(group=HOST)
        if dist.get_rank() == 0:
            print(json.dumps(line), flush=True)


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("cpu:gloo,cuda:nccl")
HOST = dist.new_group(backend="gloo")
main()
os._exit(0)

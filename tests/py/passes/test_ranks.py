"""Steps of several ranks, each run by the interpreters in a thread of its own: every stage has torch's means and one vote."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from levels import run_text
from torch import nn

from aicf_mlir import OpKind, StateError, compile_train_step, op_call
from aicf_mlir.errors import RankError
from aicf_mlir.frontend import trace
from aicf_mlir.host.ranks import gathered, group_named, run_ranks
from aicf_mlir.passes.vote_ranks import passes_of_ranks
from aicf_mlir.stages import Snapshots, make_context, run_stages
from aicf_mlir.text.parsing import parse_module

RANKS = 3
STATUS = "failed"


def batch(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(rank)
    return torch.randn(6, 4, generator=draw), torch.randint(0, 3, (6,), generator=draw)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


def loss_of(module: nn.Module, given: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(module(given[0]), given[1])


@pytest.fixture(scope="module")
def stages() -> Snapshots:
    """The stages of a step of three ranks, as text that any machine can make."""
    ours = model()
    step = compile_train_step(
        ours, torch.optim.SGD(ours.parameters(), lr=0.5), loss_fn=loss_of, example=batch(0), device="cpu"
    )
    text = step.ir("nn")
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        text = text.replace(f'aicf.name = "{name}"}}', f'aicf.name = "{name}", aicf.of_rank = 0 : i64}}', 1)
    assert text.count("aicf.of_rank") == 3
    context, found = make_context(), Snapshots()
    module = parse_module(text, "step", context)
    options = {"average-ranks": f"ranks={RANKS}", "vote-ranks": f"ranks={RANKS}"}
    run_stages(module, context, options=options, after_each=found)
    return found


def values(rank: int, label: int | None = None) -> dict[str, torch.Tensor | float]:
    x, t = batch(rank)
    if label is not None:
        t[2] = label
    state = {name: tensor.clone() for name, tensor in model().state_dict().items()}
    return {
        "0": x,
        "1": t,
        **state,
        "lr": 0.5,
        "weight_decay": 0.0,
        STATUS: torch.zeros(3, dtype=torch.int64),
    }


def in_torch() -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """The state of all ranks after a step in f64, and the loss of each."""
    models = [model().double() for _ in range(RANKS)]
    losses = [
        loss_of(each, (x.double(), t)) for each, (x, t) in zip(models, map(batch, range(RANKS)), strict=True)
    ]
    for loss in losses:
        loss.backward()
    with torch.no_grad():
        for parameters in zip(*(each.parameters() for each in models), strict=True):
            parameters[0].sub_(0.5 * torch.stack([p.grad for p in parameters if p.grad is not None]).mean(0))
    return models[0].state_dict(), losses


@pytest.mark.parametrize("stage", ["step", "lowered", "fused", "kernel", "plan"])
def test_every_stage_trains_on_the_mean_of_all_ranks(stages: Snapshots, stage: str) -> None:
    state, losses = in_torch()
    text, given = stages.text(stage) + "\n", [values(rank) for rank in range(RANKS)]
    made = run_ranks(RANKS, lambda rank: run_text(text, given[rank]))
    for rank, found in enumerate(made):
        torch.testing.assert_close(found["loss"].double(), losses[rank].detach(), rtol=1e-6, atol=1e-6)
        for name, wanted in state.items():
            torch.testing.assert_close(found[name].double(), wanted.double(), rtol=1e-5, atol=1e-6)
            assert torch.equal(found[name], made[0][name])


@pytest.mark.parametrize("stage", ["step", "kernel", "plan"])
def test_a_bad_label_on_one_rank_is_the_status_of_all(stages: Snapshots, stage: str) -> None:
    text, given = stages.text(stage) + "\n", [values(rank, {1: 7, 2: -3}.get(rank)) for rank in range(RANKS)]
    made = run_ranks(RANKS, lambda rank: run_text(text, given[rank]))
    for found in made:
        if stage == "plan":  # which updates nothing then
            for name, before in model().state_dict().items():
                assert torch.equal(found[name], before)
        else:  # the code of the check, and for rank 1 once that of the vote
            assert found[STATUS].tolist() == [1 + 1 * 2, 2, 7]


@pytest.mark.parametrize("stage", ["step", "lowered", "fused", "kernel", "plan"])
@pytest.mark.parametrize("zero", [1, 2])
def test_every_stage_of_a_divided_step_has_the_bits_of_a_whole_one(
    stages: Snapshots, stage: str, zero: int
) -> None:
    """Every rank runs a text of its own, with a norm of all gradients, and a check of them."""

    def trained(zero: int) -> list[dict[str, torch.Tensor]]:
        texts = list[str]()
        for rank in range(RANKS):
            context, found = make_context(), Snapshots()
            options = {
                **passes_of_ranks("dp", RANKS, zero, rank),
                "clip-gradients": "norm=2.0",
                "check-finite": "",
            }
            run_stages(
                parse_module(stages.text("nn"), "step", context), context, options=options, after_each=found
            )
            texts.append(found.text(stage) + "\n")
        given = [{**values(rank), "clip_grad_norm": 0.1} for rank in range(RANKS)]
        return run_ranks(RANKS, lambda rank: run_text(texts[rank], given[rank]))

    whole, divided = trained(0), trained(zero)
    for wanted, found in zip(whole, divided, strict=True):
        assert float(wanted["grad_norm"]) > 0.1
        for name in (*model().state_dict(), "loss", "grad_norm", *([STATUS] if STATUS in wanted else [])):
            assert torch.equal(torch.as_tensor(wanted[name]), torch.as_tensor(found[name])), name


def test_every_stage_normalizes_over_all_ranks() -> None:
    """Next to torch's BatchNorm of the whole batch, in f64."""

    def made(layer: Any) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5, bias=False), layer(5), nn.Tanh(), nn.Linear(5, 3))

    def traced(rank: int) -> str:
        ours = made(nn.SyncBatchNorm)
        sgd = torch.optim.SGD(ours.parameters(), lr=0.5)
        return str(trace(ours, loss_of, batch(rank), optimizer=sgd))

    text, *others = run_ranks(RANKS, traced)
    assert others == [text] * (RANKS - 1)
    context, stages = make_context(), Snapshots()
    options = {"average-ranks": f"ranks={RANKS}", "vote-ranks": f"ranks={RANKS}"}
    run_stages(parse_module(text, "step", context), context, options=options, after_each=stages)
    whole = made(nn.BatchNorm1d).double()
    batches = [batch(rank) for rank in range(RANKS)]
    joined = torch.cat([x for x, _ in batches]).double(), torch.cat([t for _, t in batches])
    loss_of(whole, joined).backward()
    with torch.no_grad():
        for parameter in whole.parameters():
            assert parameter.grad is not None
            parameter.sub_(0.5 * parameter.grad)
    given = [values(rank) for rank in range(RANKS)]
    for stage in ("step", "lowered", "fused", "kernel", "plan"):
        at = stages.text(stage) + "\n"
        for found in run_ranks(RANKS, lambda rank, at=at: run_text(at, given[rank])):
            for name, wanted in whole.state_dict().items():
                torch.testing.assert_close(found[name].double(), wanted.double(), rtol=1e-5, atol=1e-6)


def test_norms_on_a_gpu_are_the_same_launches_where_the_updates_are_divided() -> None:
    """A launch over many tensors sums in another order than one over a single tensor, and the norm decides bits of all."""
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 3))
    adam = torch.optim.AdamW(ours.parameters())
    example = torch.zeros(6, 64), torch.zeros(6, dtype=torch.int64)
    text = compile_train_step(ours, adam, loss_fn=loss_of, example=example, device="cpu").ir("nn")

    def norms(zero: int, rank: int) -> list[str]:
        context, found = make_context(), Snapshots()
        options = {"clip-gradients": "norm=2.0", **passes_of_ranks("dp", 2, zero, rank)}
        module = parse_module(text, "step", context)
        run_stages(module, context, target="sm_90", options=options, after_each=found)
        launches = " ".join(found.text("plan").split())
        return re.findall(r'"(gen_\w*rowwise_\w+)" \w+ x\([^)]*\) -> y\(@vector_norm', launches)

    whole = norms(0, 0)
    assert sum("multi_tensor" in kernel for kernel in whole) == 2
    assert norms(1, 0) == norms(1, 1) == whole


class Twice(nn.Module):
    """A weight that is used twice, so that its gradient is a sum of products."""

    def __init__(self) -> None:
        super().__init__()
        self.same, self.last = nn.Linear(64, 64), nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.same(self.same(x.sin()).tanh()).tanh())


def test_a_gpu_adds_products_of_micro_batches_as_those_of_ranks() -> None:
    """One product over the rows of both would have other bits than the sum over ranks."""
    example = torch.zeros(6, 64), torch.zeros(6, dtype=torch.int64)
    model = Twice()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    text = compile_train_step(model, optimizer, loss_fn=loss_of, example=example, device="cpu").ir("nn")

    def products(**options: str) -> Counter[str]:
        context, found = make_context(), Snapshots()
        module = parse_module(text, "step", context)
        run_stages(module, context, target="sm_90", options=options, after_each=found)
        ops = " ".join(found.text("step").split())
        return Counter(re.findall(r"nn\.matmul [^{}]*\{trans_a = true\} : (\([^)]*\) -> tensor<\w*>)", ops))

    of_rank = products(**passes_of_ranks("dp", 2))
    assert of_rank == {
        "(tensor<12x64xf32>, tensor<12x64xf32>) -> tensor<64x64xf32>": 1,
        "(tensor<6x3xf32>, tensor<6x64xf32>) -> tensor<3x64xf32>": 1,
    }
    assert products(accumulate="count=2") == of_rank + of_rank


def test_ranks_with_other_sizes_are_refused() -> None:
    with pytest.raises(RankError, match=r"rank \d gives (16|24) bytes, rank \d gives (16|24)"):
        run_ranks(2, lambda rank: gathered("dp", 2, np.zeros(2 + rank)))

    def one_fails(rank: int) -> Any:
        if rank == 1:
            raise ZeroDivisionError
        return gathered("dp", 2, np.zeros(2))

    with pytest.raises(ZeroDivisionError):
        run_ranks(2, one_fails)


def test_a_group_that_is_not_here_is_refused() -> None:
    with pytest.raises(
        RankError, match="exchanges with 2 ranks of the group 'dp', and no such group is here"
    ):
        gathered("dp", 2, np.zeros(2))
    with pytest.raises(RankError, match="has 2 ranks, the step was made for 3"):
        run_ranks(2, lambda rank: group_named("dp", 3))


@pytest.mark.parametrize("size", [0, 5, 100_000])
def test_a_kernel_gathers_the_status_of_every_rank_too(size: int) -> None:
    """With a few bytes as one exchange, with many as two."""

    def gather(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.arange(size, dtype=torch.float32) + rank
        given = {"x": x, "status": torch.tensor([rank, 7, -rank])}
        made = {"y": torch.empty(3, size), "statuses": torch.empty(3, 3, dtype=torch.int64)}
        op_call(OpKind.AllGatherStatus, given, made, {"group": "dp", "ranks": 3})
        return made["y"], made["statuses"]

    for y, statuses in run_ranks(3, gather):
        assert torch.equal(y, torch.arange(size) + torch.arange(3.0)[:, None])
        assert statuses.tolist() == [[0, 7, 0], [1, 7, -1], [2, 7, -2]]


def test_a_kernel_without_ranks_says_so() -> None:
    x = torch.arange(3.0)
    with pytest.raises(StateError, match="no such group is here"):
        op_call(OpKind.AllGather, {"x": x}, {"y": torch.empty(2, 3)}, {"group": "dp", "ranks": 2})

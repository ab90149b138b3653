"""PyTorch's train steps: eager, Inductor, and on a GPU the whole step in one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from contender import Contender, repeat
from torch import Tensor, nn
from workloads import Batch, Workload, on_device

Step = Callable[[], Tensor]


def eager_step(workload: Workload, batch: Batch, device: str) -> Step:
    """Autograd and the fused optimizer."""
    torch.manual_seed(0)
    model = workload.model().to(device)
    optimizer = workload.torch_optimizer(model, fused=True)
    return step_of(partial(workload.loss_of, model), on_device(batch, device), optimizer, optimizer.step)


def step_of(
    loss_of: Callable[[Batch], Tensor],
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    update: Callable[[], object],
) -> Step:
    """One step by `backward()`, with `update` for what `optimizer.step()` does."""

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(batch)
        loss.backward()
        update()
        return loss.detach()

    return step


def compiled_step(workload: Workload, batch: Batch, fused: bool) -> Step:
    """Forward, loss and their gradients by Inductor; and the optimizer as torch's fused kernel or by Inductor.

    The default mode: "reduce-overhead" is of CUDA graphs, and what "max-autotune" tunes on the CPU needs frozen
    weights.
    """
    torch.manual_seed(0)
    model = workload.model()
    optimizer = workload.torch_optimizer(model, fused=True) if fused else workload.torch_optimizer(model)
    compiled = torch.compile(partial(workload.loss_of, model), fullgraph=True)
    update = optimizer.step if fused else torch.compile(lambda: optimizer.step())
    return step_of(compiled, batch, optimizer, update)


def whole_step(workload: Workload, batch: Batch) -> Step:
    """All of it in one graph of Inductor: torch.func's gradient and the optimizer written out, in place."""
    torch.manual_seed(0)
    model = workload.model()
    weights = {name: value.detach() for name, value in model.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in weights.items()}
    second = {name: torch.zeros_like(value) for name, value in weights.items()}
    count = torch.zeros(())
    decay = 1 - 1e-3 * 1e-2 if workload.adamw else 1.0

    def loss_of(values: dict[str, Tensor]) -> Tensor:
        found = torch.func.functional_call(model, values, (batch["x"],))
        return workload.loss(found, batch["t"])

    @torch.compile(fullgraph=True)
    def step() -> Tensor:
        gradients, loss = torch.func.grad_and_value(loss_of)(weights)
        count.add_(1)
        scale, root = 1e-3 / (1 - 0.9**count), (1 - 0.999**count).rsqrt()
        for name, weight in weights.items():
            gradient, m, v = gradients[name], first[name], second[name]
            m.mul_(0.9).add_(gradient * 0.1)
            v.mul_(0.999).add_(gradient * gradient * 0.001)
            weight.mul_(decay).sub_(scale * m / (v.sqrt() * root + 1e-8))
        return loss

    def without_autograd() -> Tensor:
        with torch.no_grad():
            return step()

    return without_autograd


def graph_step(workload: Workload, batch: Batch, compiled: bool = False) -> Step:
    """The whole step on a GPU in one CUDA graph, from the first weights and moments.

    Forward, loss and their gradients are eager, or `compiled` by Inductor.
    """
    torch.manual_seed(0)
    model = workload.model().to("cuda")
    optimizer = workload.torch_optimizer(model, fused=True, capturable=True)
    loss_of = partial(workload.loss_of, model)
    if compiled:
        loss_of = torch.compile(loss_of, fullgraph=True)
    step = step_of(loss_of, on_device(batch, "cuda"), optimizer, optimizer.step)
    return graph_of(step, model, optimizer)


def graph_of(step: Step, model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """A step in a CUDA graph, after some that warm it up; parameters and moments are what they were, the moments 0."""
    first = [parameter.detach().cpu() for parameter in model.parameters()]  # adds nothing to the peak
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), first, strict=True):
            parameter.copy_(value)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()
    torch.cuda.synchronize()

    def replay(alive: object = (step, model, optimizer)) -> Tensor:
        del alive  # the graph reads their memory and does not keep it
        graph.replay()
        return loss

    return replay


def torch_peers(workload: Workload, batch: Batch) -> Iterator[Contender]:
    """Those on the CPU. Of images also with channels last, which oneDNN prefers; the batch is so before the step."""
    yield Contender("eager", partial(repeat, eager_step(workload, batch, "cpu")))
    torch._dynamo.reset()
    yield Contender("compile", partial(repeat, compiled_step(workload, batch, fused=True)))
    yield Contender("compile, optimizer too", partial(repeat, compiled_step(workload, batch, fused=False)))
    if batch["x"].dim() == 4:
        last = replace(workload, model=lambda: workload.model().to(memory_format=torch.channels_last))
        x = batch["x"].contiguous(memory_format=torch.channels_last)
        yield Contender("eager, channels last", partial(repeat, eager_step(last, {**batch, "x": x}, "cpu")))
        made = compiled_step(last, {**batch, "x": x}, fused=True)
        yield Contender("compile, channels last", partial(repeat, made))
    if not any(True for _ in workload.model().buffers()):  # which torch.func would have to return
        yield Contender("compile, whole step", partial(repeat, whole_step(workload, batch)))

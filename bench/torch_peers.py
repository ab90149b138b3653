"""PyTorch's train steps: eager, Inductor, and on a GPU the whole step in one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from contender import Contender, repeat
from torch import Tensor
from workloads import Batch, Workload

Step = Callable[[], Tensor]


def eager_step(workload: Workload, batch: Batch, device: str, capturable: bool = False) -> Step:
    """Autograd and the fused optimizer."""
    torch.manual_seed(0)
    model = workload.model().to(device)
    options = {"capturable": True} if capturable else {}
    return step_of(workload, batch, model, workload.torch_optimizer(model, fused=True, **options))


def step_of(
    workload: Workload, batch: Batch, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> Step:
    """One eager step."""

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = workload.loss_of(model, batch)
        loss.backward()
        optimizer.step()
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

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = compiled(batch)
        loss.backward()
        update()
        return loss.detach()

    return step


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


def graph_step(workload: Workload, batch: Batch) -> Step:
    """The eager step in one CUDA graph, from the first weights and moments."""
    torch.manual_seed(0)
    model = workload.model().to("cuda")
    optimizer = workload.torch_optimizer(model, fused=True, capturable=True)
    step = step_of(workload, batch, model, optimizer)
    first = [parameter.detach().clone() for parameter in model.parameters()]
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

    def replay(alive: object = (model, optimizer)) -> Tensor:
        del alive  # the graph reads their memory and does not keep it
        graph.replay()
        return loss

    return replay


def torch_peers(workload: Workload, batch: Batch, device: str) -> Iterator[Contender]:
    yield Contender("eager", partial(repeat, eager_step(workload, batch, device)))
    if device == "cuda":
        yield Contender("CUDA graph", partial(repeat, graph_step(workload, batch)))
        return
    torch._dynamo.reset()
    yield Contender("compile", partial(repeat, compiled_step(workload, batch, fused=True)))
    yield Contender("compile, optimizer too", partial(repeat, compiled_step(workload, batch, fused=False)))
    yield Contender("compile, whole step", partial(repeat, whole_step(workload, batch)))

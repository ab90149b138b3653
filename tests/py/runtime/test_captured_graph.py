"""The captured graph is read back, and is what the plan says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import pytest
import torch
from branched import Transformer, class_loss
from models import mlp, mse, regression, to_device

from aicf_mlir import CompiledTrainStep, StateError, compile_train_step
from aicf_mlir.runtime.captured import CapturedNode

ROOT = Path(__file__).parents[3]


def test_graphs_are_judged_by_their_nodes_functions_and_paths(tmp_path: Path) -> None:
    program = tmp_path / "graph_match"
    sources = [ROOT / "tests/cpp/graph_match.cpp", ROOT / "csrc/runtime/graph_match.cpp"]
    command = ["c++", "-std=c++17", f"-I{ROOT / 'csrc'}", "-o", program, *sources]
    children.run(command, check=True)
    done = children.run([program])
    expected = (0, "every graph was judged as it should be\n")
    assert (done.returncode, done.stdout) == expected, done.stdout + done.stderr


def an_mlp(device: str) -> CompiledTrainStep:
    model = mlp(64, 64, 64, 64).to(device)
    return compile_train_step(
        model, torch.optim.Adam(model.parameters()), loss_fn=mse, example=batch_of(device), device=device
    )


def batch_of(device: str) -> dict[str, torch.Tensor]:
    return to_device(regression(16, 64, 64), device)


def a_transformer(device: str) -> CompiledTrainStep:
    """Branches on a GPU; the check of its class indices writes to host memory."""
    torch.manual_seed(0)
    model = Transformer(64).to(device)
    tokens = torch.randint(11, (4, 16), device=device)
    return compile_train_step(
        model,
        torch.optim.AdamW(model.parameters()),
        loss_fn=class_loss,
        example={"x": tokens, "t": tokens},
        device=device,
    )


def in_bf16(device: str) -> CompiledTrainStep:
    """Casts that only the first step of a replay has, and small steps of which one graph has many."""
    model = mlp(64, 64, 64, 64).to(device)
    return compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        loss_fn=mse,
        example=batch_of(device),
        device=device,
        precision="bf16",
    )


STEPS: dict[str, Callable[[str], CompiledTrainStep]] = {
    "mlp": an_mlp,
    "transformer": a_transformer,
    "bf16": in_bf16,
}


def paths_to(nodes: list[CapturedNode]) -> list[set[int]]:
    """For each node those in front of it; they are sorted, so that each is behind what it waits for."""
    found: list[set[int]] = []
    for node in nodes:
        assert all(early < len(found) for early in node.after)
        found.append(set(node.after).union(*(found[early] for early in node.after)))
    return found


@pytest.mark.parametrize("name", STEPS)
def test_every_node_is_of_a_launch_and_waits_for_what_the_plan_says(name: str, device: str) -> None:
    step = STEPS[name](device)
    with pytest.raises(StateError, match="nothing is captured"):
        step.captured_nodes()
    step.warmup(step.inputs)
    step.capture()
    nodes = step.captured_nodes()
    launches: list[Any] = list(step._active.program.launches)  # pyright: ignore[reportPrivateUsage]
    symbols = [launch["symbol"] for launch in launches]
    assert [node.launch for node in nodes] == sorted((n.launch for n in nodes), key=symbols.index)
    assert {node.launch for node in nodes} == set(symbols)
    kernels = dict(zip(symbols, step.planned_kernels(), strict=True))
    assert all(node.kernel == kernels[node.launch] for node in nodes)
    paths = paths_to(nodes)
    of = {symbol: [i for i, node in enumerate(nodes) if node.launch == symbol] for symbol in symbols}
    for launch in launches:
        for early in launch["after"]:
            for node in of[launch["symbol"]]:
                assert paths[node].issuperset(of[symbols[early]]), (launch["symbol"], symbols[early])
    if device == "cpu":
        step.replay(1)
        assert [node.function for node in nodes] == step._active.executor.trace(choices=True)  # pyright: ignore[reportPrivateUsage]
    else:
        assert {node.kind for node in nodes} <= {"kernel", "copy", "fill"}
        assert all(node.function for node in nodes if node.kind == "kernel")
    step.reset()
    with pytest.raises(StateError, match="nothing is captured"):
        step.captured_nodes()


@pytest.mark.gpu
def test_generated_kernels_are_named_as_the_driver_has_them() -> None:
    step = a_transformer("cuda")
    step.warmup(step.inputs)
    step.capture()
    generated = [node for node in step.captured_nodes() if node.kernel.startswith("gen_")]
    assert generated
    for node in generated:
        assert f" {node.function}(" in step.source(node.kernel), node

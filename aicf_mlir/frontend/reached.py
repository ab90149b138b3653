"""From the code of a step to the Python values behind it: `collect` lists every `Read` of a traced step."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from aicf_mlir.frontend.functions import (
    FunctionType,
    class_attribute,
)
from aicf_mlir.frontend.inspecting import inspection
from aicf_mlir.frontend.reads import ABSENT, ModuleReads, Read, named_modules
from aicf_mlir.frontend.torch_state import read_by_every_step
from aicf_mlir.frontend.walk import CALLS, TRACERS, Walk


@inspection
def collect(
    model: torch.nn.Module, function: Callable[..., Any], recorded: ModuleReads, names: Mapping[int, str]
) -> list[Read]:
    """Every place that the step `function(model, batch)` read; `names` gives further modules' paths by id."""
    paths = {id(module): f"model.{name}" if name else "model" for name, module in named_modules(model)}
    paths = {**names, **paths}
    functions: list[tuple[Any, str]] = [(function, "loss_fn")]
    attributes: list[tuple[str, Any, str]] = []
    for key, (module, read) in recorded.modules.items():
        if type(module) is torch.nn.Module or type(module).__module__.startswith(TRACERS):
            continue
        path = paths.get(key, type(module).__name__)
        for name in read:
            attributes.append((path, module, name))
            if (found := class_attribute(type(module), name)) is not ABSENT:
                functions.append((found, f"{path}.{name}"))
            if isinstance(own := vars(module).get(name), (FunctionType, types.MethodType)):
                functions.append((own, f"{path}.{name}"))

    def follow(walk: Walk) -> None:
        for value, _ in functions:
            walk.mention(value)
        for value, path in functions:
            walk.visit(value, path)
        for path, module, name in attributes:
            walk.attribute(module, name, f"{path}.{name}")
        for name in CALLS:
            walk.visit(vars(torch.nn.Module)[name], f"Module.{name}")
        for kind in (torch.Tensor, torch.nn.Parameter):
            walk.hide(kind.__name__, "type", kind)
        for name in sorted(walk.mentioned & vars(torch.Tensor).keys()):
            walk.visit(vars(torch.Tensor)[name], f"Tensor.{name}")

    return [*settled(follow).all, *read_by_every_step()]


@inspection
def collect_object(value: Any, names: Iterable[str], path: str, others: Iterable[Read]) -> list[Read]:
    """
    Every place behind the attributes `names` of an object, its own and those of its class, methods among them.

    What is in the places `others` is followed too.
    """
    kind: type = value.__class__
    found = [(name, class_attribute(kind, name)) for name in names]
    others = list(others)

    def follow(walk: Walk) -> None:
        for _, each in found:
            walk.mention(each)
        for name, each in found:
            if each is not ABSENT:
                walk.visit(each, f"{path}.{name}")
            walk.attribute(value, name, f"{path}.{name}")
        for read in others:
            walk.visit(read.value(), read.path)

    return settled(follow).all


def called_by(functions: Mapping[str, Any]) -> list[Read]:
    """The places of torch's code behind functions of torch, by what they are called."""
    walk = Walk(set())
    for path, function in functions.items():
        walk.visit(function, path)
    return walk.code


def modules_behind(function: Callable[..., Any]) -> dict[str, torch.nn.Module]:
    """The modules that a loss function finds in its closure, its globals or its object, by their names there."""
    return walk_from(function, "loss_fn").modules


def walk_from(function: Callable[..., Any], path: str) -> Walk:
    """Everything behind a function."""

    def follow(walk: Walk) -> None:
        walk.mention(function)
        walk.visit(function, path)

    return settled(follow)


@inspection
def settled(follow: Callable[[Walk], None]) -> Walk:
    """A walk by `follow` that knows from its start all names that the code on its way mentions: methods mention more."""
    walk = Walk(set())
    while True:
        known = set(walk.mentioned)
        follow(walk)
        if walk.mentioned == known:
            return walk
        walk = Walk(walk.mentioned)

"""Loop bodies in our hands and in torch's: the same world twice, its batches, and what a call returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from loop_bodies import World

from aicf_mlir import CompiledLoopStep, compile_step

Make = Callable[[], World]


def made(make: Make, device: str, dtype: torch.dtype = torch.float32) -> World:
    """The same world each time, its tensors on `device`."""
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return make()
    finally:
        torch.set_default_dtype(torch.float32)


def batches(world: World, device: str, count: int, dtype: torch.dtype = torch.float32) -> list[Any]:
    """As many batches of a world."""
    draw = torch.Generator().manual_seed(1)

    def there(tree: Any) -> Any:
        if isinstance(tree, torch.Tensor):
            return tree.to(device, dtype)
        return {k: there(v) for k, v in tree.items()} if isinstance(tree, dict) else tuple(map(there, tree))

    return [there(world.batch(draw)) for _ in range(count)]


def in_torch(world: World, batch: Any) -> Any:
    """One call of the body as it is."""
    return world.body(*batch) if world.spreads else world.body(batch)


def compiled(world: World, device: str, batch: Any, **options: Any) -> CompiledLoopStep:
    return compile_step(world.body, example=[batch], device=device, **options)


def flat(tree: Any) -> list[torch.Tensor]:
    """The tensors that a body has returned, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree.detach()]
    members = tree.values() if isinstance(tree, dict) else tree or ()
    return [tensor for member in members for tensor in flat(member)]


def assert_near(ours: World, theirs: World, tolerance: float) -> None:
    for got, wanted in zip(ours.tensors(), theirs.tensors(), strict=True):
        torch.testing.assert_close(
            got.detach(),
            wanted.detach(),
            rtol=tolerance,
            atol=tolerance,
            check_dtype=False,
            check_device=False,
        )

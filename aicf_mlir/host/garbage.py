"""The garbage collector while a step is compiled or much is imported: cycles that torch leaves, and full collections."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def cycles_collected() -> Generator[None]:
    """Collect the cycles that the block leaves when it ends, with the collector on or off.

    torch.export leaves some that hold the model's parameters, which would otherwise wait for a full collection. While the
    automatic collector is off, all objects of the block stay in the two youngest generations, and scanning those is quick.
    Meanwhile the collector does not scan the growing IR, and all of torch, again and again.
    """
    with collector_off():
        try:
            yield
        finally:
            gc.collect(1)


@contextmanager
def collector_off() -> Generator[None]:
    """Run the block without the automatic collector: what makes many objects and no garbage, such as an import."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

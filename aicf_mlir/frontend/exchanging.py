"""A trace of a step with exchanges: what calls of torch.distributed are while it runs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from types import CellType, FunctionType
from typing import Any

import torch.distributed as dist
from torch.distributed.nn import functional

from aicf_mlir.frontend import source
from aicf_mlir.frontend.exchange_calls import IN_PLACE, Exchange, batch_isend_irecv
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.torch_errors import EXCHANGES

GUARD = "_not_supported_under_compile"
"""The function by which torch.distributed.nn.functional refuses to be traced, where it does."""

METHODS = (
    *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "gather", "scatter"),
    *("allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "_allgather_base"),
    *("reduce_scatter", "reduce_scatter_tensor_coalesced", "_reduce_scatter_base"),
    *("alltoall", "alltoall_base", "send", "recv", "recv_anysource"),
)
"""The methods of a process group by which everything exchanges. Tensors of a trace pass some of them without an error."""

OF_OBJECTS = (
    *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
    *("send_object_list", "recv_object_list"),
)
"""Functions that exchange what is no tensor."""


WRAPPED = "func"
"""The variable of a wrapper of torch.distributed that has the function."""


def unguarded(*args: object, **kwargs: object) -> None:
    """Refuse nothing."""


def unfollowed(*args: object, **kwargs: object) -> None:
    """Raise TraceError."""
    location = source.here()
    raise trace_error(f"the step {EXCHANGES.format(line=quoted(location))}", location)


def cells() -> Generator[tuple[CellType, Exchange]]:
    """The places from which functions of torch.distributed take what they do, and what takes its place.

    Torch wraps them in functions that log errors. Whoever has imported one of these has the same one.
    """
    for name, exchange in {**IN_PLACE, **dict.fromkeys(OF_OBJECTS, unfollowed)}.items():
        function = getattr(dist, name, None)
        if isinstance(function, FunctionType) and WRAPPED in function.__code__.co_freevars:
            yield (function.__closure__ or ())[function.__code__.co_freevars.index(WRAPPED)], exchange


BATCHED: list[Exchange] = []
"""What `batch_isend_irecv` does in the last trace; in other threads torch's own, also just after it."""


def in_batch(p2p_op_list: Sequence[Any]) -> Any:
    """The code of `batch_isend_irecv` in a trace: torch does not wrap that function, so its own code is replaced."""
    from aicf_mlir.frontend.exchanging import BATCHED

    return BATCHED[0](p2p_op_list)


@contextmanager
def exchanging() -> Generator[None]:
    """Trace a step with its exchanges in this thread; those that are not followed are refused."""
    thread = get_ident()

    def here(own: Exchange, instead: Exchange) -> Exchange:
        @wraps(own)
        def call(*args: Any, **kwargs: Any) -> Any:
            return (instead if get_ident() == thread else own)(*args, **kwargs)

        return call

    group: Any = dist.ProcessGroup
    batched = dist.batch_isend_irecv.__code__
    itself: Any = FunctionType(batched, dist.batch_isend_irecv.__globals__)
    methods: dict[str, Any] = {name: vars(group)[name] for name in METHODS if name in vars(group)}
    functions = [(cell, cell.cell_contents, exchange) for cell, exchange in cells()]
    guard = vars(functional).get(GUARD)
    try:
        for name, own in methods.items():
            setattr(group, name, here(own, unfollowed))
        for cell, own, exchange in functions:
            cell.cell_contents = here(own, exchange)
        BATCHED[:] = [here(itself, batch_isend_irecv)]
        dist.batch_isend_irecv.__code__ = in_batch.__code__
        if guard is not None:
            setattr(functional, GUARD, here(guard, unguarded))
        yield
    finally:
        for name, own in methods.items():
            setattr(group, name, own)
        for cell, own, _ in functions:
            cell.cell_contents = own
        dist.batch_isend_irecv.__code__ = batched
        if guard is not None:
            setattr(functional, GUARD, guard)

"""The results of collectives, for the rank that this process or this thread is (`host/ranks.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from aicf_mlir.host.ranks import exchanged, gathered
from aicf_mlir.interpreters.call import Call, Meaning
from aicf_mlir.interpreters.numerics import Array, widen


def all_gather(call: Call) -> list[Array]:
    """Return x of every rank."""
    return [gathered(call.attr("group", ""), call.attr("ranks", 1), call["x"])]


def all_gather_status(call: Call) -> list[Array]:
    """The status of every rank too."""
    group, ranks = call.attr("group", ""), call.attr("ranks", 1)
    return [gathered(group, ranks, call[name]) for name in ("x", "status")]


def all_to_all(call: Call) -> list[Array]:
    """Return the row of every rank that is for this one."""
    return [exchanged(call.attr("group", ""), call.attr("ranks", 1), call["x"])]


def all_reduce(call: Call) -> list[Array]:
    """The mean over the ranks."""
    (of_ranks,) = all_gather(call)
    return [widen(of_ranks).mean(0)]


def all_reduce_status(call: Call) -> list[Array]:
    """The mean, and the status of every rank."""
    of_ranks, statuses = all_gather_status(call)
    return [widen(of_ranks).mean(0), statuses]


MEANINGS: Mapping[str, Meaning] = {
    "all_gather": all_gather,
    "all_gather_status": all_gather_status,
    "all_to_all": all_to_all,
    "all_reduce": all_reduce,
    "all_reduce_status": all_reduce_status,
}

"""Work in a process of its own, with a time limit: what it does to memory, or how it ends, touches nothing else."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

Part = dict[str, Any]
"""What is known so far of a result."""

EXIT_S = 10.0
"""How long a process that has sent all may take to end."""


def in_child(work: Callable[[], Iterator[Part]], limit: float) -> Iterator[Part]:
    """What `work` yields within `limit` seconds; where it did not come to its end, a last part says why, as "error".

    The process is forked, so that it need not import what this one has. This one must have used neither a GPU nor torch's
    threads, which a fork does not take along.
    """
    context = multiprocessing.get_context("fork")
    received, sent = context.Pipe(duplex=False)
    process = context.Process(target=send_parts, args=(work, sent))
    process.start()
    sent.close()
    deadline = time.monotonic() + limit
    try:
        while received.poll(max(0.0, deadline - time.monotonic())):
            part = received.recv()
            if part is None:
                process.join(EXIT_S)
                return
            yield part
        yield {"error": f"stopped at its limit of {limit:.0f} s"}
    except EOFError:
        process.join(EXIT_S)
        yield {"error": f"its process ended with exit code {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def send_parts(work: Callable[[], Iterator[Part]], sent: Connection) -> None:
    """In the child: the parts, the error that ended them, and None for the end."""
    try:
        for part in work():
            sent.send(part)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        first, *_ = str(error).strip().splitlines() or [""]
        sent.send({"error": f"{type(error).__name__}: {first}", "traceback": traceback.format_exc()})
    sent.send(None)

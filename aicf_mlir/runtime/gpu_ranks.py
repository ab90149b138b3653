"""GPUs of several processes that exchange bytes, and what ends their waiting once one of the processes has gone."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from threading import Thread

import torch

from aicf_mlir import _C
from aicf_mlir.errors import AicfError
from aicf_mlir.runtime.neighbours import NONE, Neighbours, Told, agreed
from aicf_mlir.runtime.tensors import current_stream

POLL_MS = 1000
"""Between two looks at what the library says."""


class GpuRanks(Thread):
    """The GPUs of a group, one of each process, as this process sees them.

    A GPU that waits for a process that was killed would wait for ever. So a thread watches the other processes of this host, and
    what the library says of those elsewhere. Once one has gone, all waiting is aborted. Then the statuses for the
    vote, which the last exchange of a step carries, say "failed" in every word, and the step changes nothing.
    """

    communicator: _C.Communicator
    lost: str = ""
    """Why nothing can be exchanged any more."""

    def __init__(self, device: int, rank: int, told: Told, neighbours: Neighbours):
        """Connect the GPUs; all ranks call it together. Raises RankError on all where one cannot."""
        super().__init__(name="aicf ranks", daemon=True)
        self._device, self._stream = torch.device("cuda", device), 0
        self._processes = {each: of for of, each in enumerate(neighbours.processes) if each != NONE}

        def connected() -> str:
            self.communicator = _C.Communicator(device, rank, len(neighbours.processes))
            return self.communicator.address().hex()

        addresses = [bytes.fromhex(each) for each in agreed(told, "address", connected)]

        def opened() -> str:
            with suppress(AicfError):
                if neighbours.is_one_host and all(addresses):
                    self.communicator.open(addresses)
                    return "yes"
            return ""

        if all(agreed(told, "opened", opened)):
            self.communicator.use_mailboxes()
        else:
            os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # nothing is summed in a switch
            first = bytes.fromhex(agreed(told, "id", lambda: _C.communicator_id().hex())[0])
            agreed(told, "library", lambda: self.communicator.use_library(first) or "")
        self.start()

    def on_current_stream(self) -> None:
        """Let what this group exchanges run in one order: wait for what another stream still has."""
        stream = current_stream(self._device)
        if stream != self._stream:
            torch.cuda.synchronize(self._device)
            self._stream = stream

    def run(self) -> None:
        """Wait until another rank has gone."""
        poll = select.poll()
        for descriptor in self._processes:
            poll.register(descriptor, select.POLLIN)
        while True:
            gone = poll.poll(POLL_MS)
            try:
                self.communicator.check()
            except AicfError as error:
                return self._abort(str(error))
            if gone:
                return self._abort(f"rank {self._processes[gone[0][0]]} has ended")

    def _abort(self, reason: str) -> None:
        self.lost = reason
        self.communicator.abort()

"""A compiled evaluation step: the loss alone."""

from __future__ import annotations

import os

import torch

from aicf_mlir.errors import StateError
from aicf_mlir.runtime.micro_batches import StepBatch
from aicf_mlir.step.compiled_step import CompiledTrainStep


class CompiledEvalStep(CompiledTrainStep):
    """The loss alone: made by `compile_eval_step`, runs as a train step does, and trains nothing.

    It changes only the buffers that the model's forward updates in this mode, as in torch.
    """

    def eval_step(self, batch: StepBatch) -> torch.Tensor:
        """Compute the loss of `batch`."""
        return self.train_step(batch)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Raise StateError: a step that trains nothing has nothing to save."""
        raise StateError(f"{self.name}: an evaluation step has no state of its own; save the train step")

    def load(self, path: str | os.PathLike[str]) -> None:
        """Raise StateError, as `save` does."""
        raise StateError(f"{self.name}: an evaluation step has no state of its own; load into the train step")

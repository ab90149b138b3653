"""The extension of torch modules by `aicf_mlir.nn`: a module can be compiled, and then trained in whole steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from aicf_mlir.errors import StateError
from aicf_mlir.frontend.structure import Batch

if TYPE_CHECKING:
    from aicf_mlir.runtime.snapshot import Snapshot
    from aicf_mlir.step.compiled_step import CompiledTrainStep

_STEP = "_aicf_step"


class CompiledMethods(torch.nn.Module):
    """The short form of `compile_train_step`: compile the module, then call the step's methods on it."""

    def compile(self, *args: Any, optimizer: torch.optim.Optimizer | None = None, **options: Any) -> None:
        """
        Compile the whole train step of this module under `optimizer`.

        Every option of `compile_train_step` is accepted: loss_fn, example, B, D, device, dtype,
        warmup_inputs, warmup_runs, warmup_required, name, keep_gradients, check_finite, …. Without `optimizer` this is
        `torch.nn.Module.compile`.
        """
        if optimizer is None:
            super().compile(*args, **options)  # pyright: ignore[reportUnknownMemberType]
            return
        from aicf_mlir.step.compile import compile_train_step

        vars(self)[_STEP] = compile_train_step(self, optimizer, *args, **options)

    @property
    def compiled_step(self) -> CompiledTrainStep:
        """The compiled step, for members without a method here: meta, state, ir, …; StateError before compile."""
        step: CompiledTrainStep | None = vars(self).get(_STEP)
        if step is None:
            raise StateError(
                f"this {type(self).__name__} is not compiled; call compile(optimizer=..., B=..., D=...) first"
            )
        return step

    def train_step(self, inputs: Batch) -> torch.Tensor:
        """Run one step eagerly on `inputs` and return its loss (0-d)."""
        return self.compiled_step.train_step(inputs)

    def capture(self, inputs: Batch | None = None) -> None:
        """Record the step for the shapes of `inputs`; no parameter changes."""
        self.compiled_step.capture(inputs)

    def replay(self, n: int = 1, inputs: Batch | None = None, sync: bool = False) -> torch.Tensor:
        """Repeat the captured step `n` times and return the last loss; `sync` waits for the device."""
        return self.compiled_step.replay(n, inputs, sync)

    def reset(self) -> None:
        """Free the captured graphs; parameters and optimizer state stay."""
        self.compiled_step.reset()

    def snapshot(self) -> Snapshot:
        """A copy of parameters, optimizer state and host scalars."""
        return self.compiled_step.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the contents of `snapshot`, bit for bit."""
        self.compiled_step.restore(snapshot)

    def __getstate__(self) -> dict[str, Any]:
        """The state that is copied and pickled: not the compiled step, which belongs to exactly these parameters."""
        return {name: value for name, value in vars(self).items() if name != _STEP}

"""The precision of a step with parameters of f32: the rules of torch.autocast, around the model and its loss, or TF32."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import torch
from xdsl.dialects.builtin import ModuleOp, f32

from aicf_mlir.dialects import nn
from aicf_mlir.errors import BindError
from aicf_mlir.ir.properties import bool_attr
from aicf_mlir.ir.signature import argument_labels, steps
from aicf_mlir.ir.tensor_op import element_type

PrecisionName = Literal["f32", "tf32", "bf16", "f16"]

COMPUTED_IN: Mapping[str, torch.dtype] = {
    "f32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
}
"""The type of products and the other ops in the lists of torch.autocast, by the name of the precision; it is a tensor's
dtype.
"""

ALLOWS_TF32 = ("tf32",)
"""The precisions in which products of f32 operands may round them to TF32."""

SCALED = ("f16",)
"""The precisions in which small gradients are zero unless the loss is scaled."""


@dataclass(frozen=True)
class Precision:
    """The requested precision, on a device; without a name the model computes as it is written.

    Parameters, gradients as the optimizer reads them, its state and its updates are f32. With "bf16" or "f16" model and
    loss are traced under `torch.autocast` of the step's device, where each op computes in the type torch lists for
    it. An autocast of the user's own inside takes precedence. The trace casts at each use, without torch's cache of
    cast weights. With "tf32" all is f32 and nothing is cast: each product of the model, of its loss and of their
    gradients allows its operands to be rounded. Products of an optimizer do not.
    """

    name: str | None = None
    device: torch.device | None = None

    @staticmethod
    def of(asked: object) -> Precision:
        """Make a precision from the argument of a function that compiles. Raises BindError for another name."""
        if asked is None:
            return Precision()
        if not isinstance(asked, str) or asked not in COMPUTED_IN:
            names = ", ".join(f'"{name}"' for name in COMPUTED_IN)
            raise BindError(
                f"precision must be one of {names}, or None for what the model is written in, got {asked!r}"
            )
        return Precision(asked)

    @property
    def is_low(self) -> bool:
        """True if the step computes in less than f32."""
        return self.name is not None and COMPUTED_IN[self.name].itemsize < torch.float32.itemsize

    @property
    def loss_scale(self) -> str | None:
        """The default scaling of a loss: if torch users take a GradScaler, by its rules."""
        return "dynamic" if self.name in SCALED else None

    def on(self, device: torch.device) -> Precision:
        """Return the same for a step on `device`."""
        return replace(self, device=device)

    def check(self, names: Mapping[torch.Tensor, str]) -> None:
        """Raise BindError for a tensor of the model that the precision does not support.

        One case is a parameter that is not f32, except a frozen one of low precision, which autocast casts like
        activations. The other is a tensor on another kind of device, where that device's rules would hold.
        """
        if self.name is None:
            return
        for tensor, name in names.items():
            is_parameter = isinstance(tensor, torch.nn.Parameter) and tensor.is_floating_point()
            is_bound = is_parameter and (tensor.requires_grad or not self.is_low)
            if is_bound and tensor.dtype is not torch.float32:
                raise BindError(
                    f'precision="{self.name}" expects parameters of torch.float32, but {name!r} is {tensor.dtype}; call'
                    " model.float() before the optimizer is made, or leave precision= out to compute in what they are"
                )
            if (
                self.is_low
                and self.device is not None
                and tensor.device.type not in ("meta", self.device.type)
            ):
                where = self.device.type
                raise BindError(
                    f'precision="{self.name}" follows the rules of torch.autocast("{where}"), but {name!r} is on'
                    f' {tensor.device}; call model.to("{where}") before'
                )

    def mark(self, module: ModuleOp) -> None:
        """Mark the products of `module`, a traced model and its loss, with their allowed precision.

        A product by constants is a Fourier transform, say, which torch computes in f32.
        """
        if self.name not in ALLOWS_TF32:
            return
        literals = {
            argument
            for step in steps(module)
            for argument, label in zip(step.args, argument_labels(step), strict=True)
            if label.is_literal
        }
        for op in module.walk():
            if not isinstance(op, nn.MatmulOp | nn.LinearOp | nn.ConvolvingOp) or literals & {
                *op.operands[:2]
            }:
                continue
            if element_type(op.result) == f32:
                op.properties["allow_tf32"] = bool_attr(True)

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context in which ops compute in the requested precision."""
        if not self.is_low or self.name is None or self.device is None:
            return nullcontext()
        return torch.autocast(self.device.type, COMPUTED_IN[self.name], cache_enabled=False)

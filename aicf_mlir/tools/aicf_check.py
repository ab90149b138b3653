"""`aicf-check FILE.py:FUNCTION`: ten steps in torch eager and in AICF side by side: loss, every gradient, every parameter."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from aicf_mlir.compile import compile_train_step
from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.example import LossFunction, loss_function
from aicf_mlir.frontend.model import modules_of, tensor_names
from aicf_mlir.frontend.outcome import outcome
from aicf_mlir.frontend.structure import Batch, mapped
from aicf_mlir.runtime.devices import default_device, usable_device
from aicf_mlir.tools.command_line import FAILED, OK, ToolParser, VersionAction, guarded
from aicf_mlir.tools.user_function import UserStep, load_user_step

DESCRIPTION = """\
Run a train step in torch eager and in AICF side by side, from the same start, and compare the loss, every gradient and
every parameter after each step with torch in float64. AICF may be three times as far from it as torch itself.

  aicf-check examples/mlp.py:classifier

FUNCTION takes no arguments and returns a dictionary: "model", "optimizer", "batch" (an example), and optionally
"loss_fn" (a function of model and batch; default: mean squared error of model(batch["x"]) against batch["t"]).
"""

MARGIN = 3.0
"""AICF may be this many times as far from float64 as torch's own arithmetic is."""
FLOOR = {torch.float64: 1e-14, torch.float32: 3e-6, torch.bfloat16: 1.2e-2, torch.float16: 1.5e-3}
"""Relative error that is always accepted: a few roundings of the parameters' dtype."""


@dataclass
class Row:
    """Worst difference of one quantity over all steps; errors are root mean squares over its elements, relative to its scale."""

    name: str
    ours: float = 0.0
    theirs: float = 0.0
    same_mask: bool = True

    def observe(self, ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> None:
        """Take in one step: our value, torch's, and the float64 reference."""
        a, b, c = (t.detach().double().cpu() for t in (ours, theirs, exact))
        finite = torch.isfinite(b)
        self.same_mask &= torch.equal(torch.isfinite(a), finite) and torch.equal(a.isnan(), b.isnan())
        finite &= torch.isfinite(c)
        scale = c[finite].square().mean().sqrt().item() if finite.any() else 0.0
        for attribute, value in (("ours", a), ("theirs", b)):
            error = (value - c)[finite].square().mean().sqrt().item() if finite.any() else 0.0
            setattr(self, attribute, max(getattr(self, attribute), error / scale if scale else error))

    def passes(self, floor: float) -> bool:
        """Whether the error is within the margin."""
        return self.same_mask and self.ours <= MARGIN * self.theirs + floor


def check(user: UserStep, device: str, steps: int) -> tuple[list[Row], float]:
    """Run `steps` steps of AICF, torch, and torch in float64 from the same start, and compare.

    Returns a row per quantity and the relative error that is always accepted for the model's dtype.
    Raises TraceError without an optimizer, and what `compile_train_step` raises.
    """
    if user.optimizer is None:
        raise TraceError(f"{user.location}: nothing to check without an optimizer; return one as 'optimizer'")
    if steps < 1:
        raise TraceError(f"--steps must be at least 1, got {steps}")
    device = str(usable_device(device))
    batch = mapped(lambda tensor: tensor.to(device), user.batch)
    model, optimizer, loss = user.model.to(device), user.optimizer, on_device(user.loss_fn, device)
    theirs, exact = (Eager(*copy.deepcopy((model, optimizer, loss))) for _ in range(2))
    exact.to_float64()
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    exact_batch = mapped(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, batch)
    step = compile_train_step(
        model, optimizer, loss_fn=loss, example=[batch], device=device, name="check", keep_gradients=True
    )
    parameters = trainable(model, loss)
    rows: dict[str, Row] = {}
    for _ in range(steps):
        values = {"loss": step.train_step(batch)}
        values |= {f"grad {name}": gradient for name, gradient in step.gradients.items()}
        values |= {f"param {name}": p for name, p in parameters.items()}
        reference, truth = theirs.step(batch), exact.step(exact_batch)
        for name, value in values.items():
            rows.setdefault(name, Row(name)).observe(value, reference[name], truth[name])
    return list(rows.values()), FLOOR.get(dtype, FLOOR[torch.float32])


def on_device(loss: LossFunction | None, device: str) -> LossFunction | None:
    """The loss with the parameters and buffers that it may have on `device`."""
    return loss.to(device) if isinstance(loss, torch.nn.Module) else loss


def trainable(model: torch.nn.Module, loss: LossFunction | None) -> dict[str, torch.nn.Parameter]:
    """The parameters of the model, and of a loss that is a module, by the names that the compiled step has for them."""
    names = tensor_names(modules_of(model, loss_function(loss)))
    return {name: p for p, name in names.items() if isinstance(p, torch.nn.Parameter)}


@dataclass
class Eager:
    """A copy of the step that torch runs; a loss with parameters is copied with the model."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    loss: LossFunction | None

    def to_float64(self) -> None:
        """Compute in float64 from now on."""
        for part in (self.model, self.loss):
            if isinstance(part, torch.nn.Module):
                part.double()

    def step(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Run one step; the loss, and every gradient and parameter by name."""
        self.optimizer.zero_grad(set_to_none=True)
        loss, _ = outcome(loss_function(self.loss)(self.model, batch), None)
        torch.autograd.backward(loss)
        parameters = trainable(self.model, self.loss)
        values = {"loss": loss.detach().clone()}
        values |= {f"grad {n}": p.grad.clone() for n, p in parameters.items() if p.grad is not None}
        self.optimizer.step()
        return values | {f"param {n}": p.detach().clone() for n, p in parameters.items()}


def render(rows: list[Row], floor: float) -> str:
    """The table and the verdict."""
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}}  {'AICF':>9}  {'torch':>9}   error relative to float64"]
    lines += [
        f"{row.name:{width}}  {row.ours:9.2e}  {row.theirs:9.2e}   {'ok' if row.passes(floor) else 'DIFFERS'}"
        for row in rows
    ]
    bad = [row.name for row in rows if not row.passes(floor)]
    verdict = f"FAIL: {', '.join(bad)}" if bad else f"PASS: {len(rows)} quantities agree with torch"
    return "\n".join([*lines, verdict])


def build_parser() -> ToolParser:
    """The options of aicf-check."""
    parser = ToolParser("aicf-check", description=DESCRIPTION)
    parser.add_argument("function", metavar="FILE.py:FUNCTION", help="builds the step")
    parser.add_argument("--device", default=default_device(), help="cpu or cuda (default: CUDA where usable)")
    parser.add_argument("--steps", type=int, default=10, help="how many steps (default: 10)")
    parser.add_argument("--debug", action="store_true", help="show the Python traceback of an internal error")
    parser.add_argument("--version", action=VersionAction)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code: 0 when everything agrees, 1 when it does not or on an error."""
    options = build_parser().parse(sys.argv[1:] if arguments is None else arguments)

    def run() -> int:
        rows, floor = check(load_user_step(options.function), options.device, options.steps)
        sys.stdout.write(f"{render(rows, floor)}\n")
        return OK if all(row.passes(floor) for row in rows) else FAILED

    return guarded(run, "aicf-check", arguments, debug=options.debug)


if __name__ == "__main__":
    sys.exit(main())

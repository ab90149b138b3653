"""`aicf-check FILE.py:FUNCTION`: steps of AICF held against torch's: loss, outputs, gradients, parameters, states."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.example import LossFunction
from aicf_mlir.frontend.structure import mapped
from aicf_mlir.runtime.devices import default_device, usable_device
from aicf_mlir.step.compile import compile_train_step
from aicf_mlir.step.eager import Comparison
from aicf_mlir.tools.command_line import FAILED, OK, ToolParser, VersionAction, guarded
from aicf_mlir.tools.user_function import UserStep, load_user_step

DESCRIPTION = """\
Run a train step in AICF, and each step in torch too, from the same state: once as it is and once in float64 on the host.
Loss, outputs, every gradient, and what has changed of every parameter, buffer and optimizer state are compared. AICF may be
three times as far from float64 as torch itself; the first layer that differs is named.

  aicf-check examples/mlp.py:classifier

FUNCTION takes no arguments and returns a dictionary: "model", "optimizer", "batch" (an example), and optionally
"loss_fn" (a function of model and batch; default: mean squared error of model(batch["x"]) against batch["t"]).
"""


def check(user: UserStep, device: str, steps: int) -> Comparison:
    """Compare `steps` steps with torch. Raises TraceError without an optimizer, and as `compile_train_step` and `check` do."""
    if user.optimizer is None:
        raise TraceError(f"{user.location}: nothing to check without an optimizer; return one as 'optimizer'")
    if steps < 1:
        raise TraceError(f"--steps must be at least 1, got {steps}")
    device = str(usable_device(device))
    batch = mapped(lambda tensor: tensor.to(device), user.batch)
    model, loss = user.model.to(device), on_device(user.loss_fn, device)
    step = compile_train_step(
        model, user.optimizer, loss_fn=loss, example=[batch], device=device, name="check", keep_gradients=True
    )
    return step.check(batch, steps=steps, exact=True)


def on_device(loss: LossFunction | None, device: str) -> LossFunction | None:
    """The loss with the parameters and buffers that it may have on `device`."""
    return loss.to(device) if isinstance(loss, torch.nn.Module) else loss


def render(comparison: Comparison) -> str:
    """The table and the verdict."""
    differing = list(dict.fromkeys(row.name for row in comparison.differences))
    count = len({row.name for row in comparison.rows})
    verdict = f"FAIL: {', '.join(differing)}" if differing else f"PASS: {count} quantities agree with torch"
    return f"{comparison}\n{verdict}"


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
        comparison = check(load_user_step(options.function), options.device, options.steps)
        sys.stdout.write(f"{render(comparison)}\n")
        return OK if comparison else FAILED

    return guarded(run, "aicf-check", arguments, debug=options.debug)


if __name__ == "__main__":
    sys.exit(main())

"""Explanations of torch's own errors for a step: of errors that mention the tracer instead of the user's code."""

from __future__ import annotations

import re

from aicf_mlir.frontend.batched import only_batches
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.ir.locations import SourceLocation

CONTROL_FLOW = (
    "uses an op that takes functions (torch.cond, while_loop, map, scan or the like){line}, which is not"
    " supported; compute every branch with tensors and choose between them by arithmetic, or write the loop in"
    " Python with a fixed number of rounds"
)
TRANSFORMS = (
    "uses a transform of torch.func that is not supported{line}; grad, vjp, jvp, jacrev, jacfwd, hessian, linearize and vmap are"
    " supported"
)
TWICE = (
    "updates a tensor in place that it reaches in two ways{line}: a buffer that a closure, a list or an object holds"
    " too, say; read it from the module in both places"
)
NO_BUFFER = (
    "changes a tensor in place that is no buffer of the model{line}, which is not supported; register it with"
    " register_buffer on a module of the model, or on one that the loss function has"
)
ON_META = (
    "on the meta device, which has no values{line}; give it some (model.to_empty), or call its module with other tensors, by"
    " torch.func.functional_call"
)
EXCHANGES = (
    "exchanges with other processes{line} by a function that is not supported; all_reduce, all_gather, reduce_scatter, all_to_all"
    " and broadcast are, also those of torch.distributed.nn"
)
OF_EXCHANGES = "torch.distributed"
"""The module of functions, and of autograd functions, that exchange."""
EXPLANATIONS: tuple[tuple[str, str], ...] = (
    (r"UncapturedHigherOrderOpError|higher.order op", CONTROL_FLOW),
    (r"\A.*(functorch|TensorWrapper|GradTrackingTensor|BatchedTensor|dual_level|_make_dual)", TRANSFORMS),
    (r"(DeviceMismatchError|FakeTensor Device Propagation).*\bmeta\b", f"reads a tensor {ON_META}"),
    (r"expected compiled_fn to be GraphModule", TWICE),
    (r"is mutated in the forward method", NO_BUFFER),
    (r"torch\.distributed\S* is not supported under torch\.compile", EXCHANGES),
)
"""Patterns of type and text of an error, and the message for the user: the step {…}, with its line. A transform is named in the
first line; further ones may list all that torch has.
"""


def refuse_exchange(function: object, location: SourceLocation | None) -> None:
    """Raise TraceError for what torch would exchange now, with processes that trace too, or do not."""
    if getattr(function, "__module__", None) and str(function.__module__).startswith(OF_EXCHANGES):
        raise trace_error(f"the step {EXCHANGES.format(line=quoted(location))}", location)


def in_transform() -> bool:
    """True if a transform of torch.func other than vmap is running; torch has no public name."""
    return not only_batches()


def explained(error: Exception, location: SourceLocation | None) -> Exception:
    """Return the TraceError for an error of torch while it traced: in the user's terms if the cause is known."""
    whole = f"{type(error).__name__}: {error}"
    for pattern, explanation in EXPLANATIONS:
        if re.search(pattern, whole):
            return trace_error(f"the step {explanation.format(line=quoted(location))}", location)
    text = str(error).strip().split("\n\n")[0]
    return trace_error(f"{type(error).__name__}: {text}", location)

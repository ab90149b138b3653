"""The nn dialect: the computation of a model, on immutable tensors of static shape.

Every op has results whose types its operands and attributes imply, a verifier that checks them, and either a vector-Jacobian
product or a reason for having none. `aicf_mlir.interpreters` defines the result of each op. The dialect has every op that a file
of this folder defines.
"""

# ruff: noqa: F403, F405  (a file exports its `__all__`)
from importlib import import_module
from pkgutil import iter_modules

from xdsl.ir import Dialect, Operation

from aicf_mlir.dialects.nn import pointwise
from aicf_mlir.dialects.nn.attention import *
from aicf_mlir.dialects.nn.attention_gradients import *
from aicf_mlir.dialects.nn.broadcasting import *
from aicf_mlir.dialects.nn.canonicalization import patterns_of
from aicf_mlir.dialects.nn.checks import *
from aicf_mlir.dialects.nn.collectives import *
from aicf_mlir.dialects.nn.common import Canonicalized, NNOp, UnfoldsBody
from aicf_mlir.dialects.nn.convolutions import *
from aicf_mlir.dialects.nn.custom_gradients import *
from aicf_mlir.dialects.nn.extremes import *
from aicf_mlir.dialects.nn.gathering import *
from aicf_mlir.dialects.nn.indices import *
from aicf_mlir.dialects.nn.linear_algebra import *
from aicf_mlir.dialects.nn.losses import *
from aicf_mlir.dialects.nn.normalization import *
from aicf_mlir.dialects.nn.pointwise import PointwiseOp
from aicf_mlir.dialects.nn.randomness import *
from aicf_mlir.dialects.nn.ranking import *
from aicf_mlir.dialects.nn.rearranging import *
from aicf_mlir.dialects.nn.reductions import *
from aicf_mlir.dialects.nn.running import *
from aicf_mlir.dialects.nn.scattering import *
from aicf_mlir.dialects.nn.shape import *
from aicf_mlir.dialects.nn.slicing import *
from aicf_mlir.dialects.nn.softmax import *
from aicf_mlir.dialects.nn.statistics import *
from aicf_mlir.dialects.nn.unfolding import unfold
from aicf_mlir.dialects.nn.window_extremes import *
from aicf_mlir.dialects.nn.window_sums import *
from aicf_mlir.dialects.nn.windows import *


def _ops() -> list[type[Operation]]:
    """The ops in the order of the files, and of the lines in each; ops that a table makes come after the others of their file."""
    ops: list[type[Operation]] = []
    for file in sorted(row.name for row in iter_modules(__path__)):
        module = import_module(f"{__name__}.{file}")
        classes = (each for each in vars(module).values() if isinstance(each, type))
        own = (each for each in classes if each.__module__ == module.__name__ and issubclass(each, NNOp))
        ops += [each for each in own if "name" in vars(each)]
        ops += getattr(module, "CLASSES", {}).values()
    return ops


Canonicalized.FORMS = patterns_of
UnfoldsBody.UNFOLD = unfold
NN = Dialect("nn", _ops())


def __getattr__(name: str) -> type[PointwiseOp]:
    try:
        return getattr(pointwise, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None

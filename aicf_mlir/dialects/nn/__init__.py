"""
The nn dialect: what a model says, on immutable tensors of static shape.

Every op has results whose types its operands and attributes imply, a verifier that says so, and either a
vector-Jacobian product or a reason for having none. What each op computes stands in
`aicf_mlir.interpreters.nn`.
"""

from xdsl.ir import Dialect

from aicf_mlir.dialects.nn.activations import (
    GeluGradOp,
    GeluOp,
    ReluGradOp,
    ReluOp,
    SigmoidGradOp,
    SigmoidOp,
    SiluGradOp,
    SiluOp,
    TanhGradOp,
    TanhOp,
)
from aicf_mlir.dialects.nn.broadcasting import BroadcastToOp, ReductionOp, SumOp, broadcast_shapes
from aicf_mlir.dialects.nn.checks import CheckFiniteOp, CheckIndexOp, CheckOp
from aicf_mlir.dialects.nn.elementwise import AddOp, BinaryOp, DivOp, MulOp, NegOp, SubOp, UnaryOp
from aicf_mlir.dialects.nn.linear_algebra import LinearOp, MatmulOp
from aicf_mlir.dialects.nn.losses import CrossEntropyGradOp, CrossEntropyOp, MseLossGradOp, MseLossOp
from aicf_mlir.dialects.nn.reductions import MeanOp
from aicf_mlir.dialects.nn.shape import CastOp, ConstantOp, DetachOp, ReshapeOp, TransposeOp
from aicf_mlir.dialects.nn.statistics import VarMeanOp

NN = Dialect(
    "nn",
    [
        ConstantOp,
        DetachOp,
        AddOp,
        SubOp,
        MulOp,
        DivOp,
        NegOp,
        ReluOp,
        GeluOp,
        SiluOp,
        TanhOp,
        SigmoidOp,
        ReluGradOp,
        GeluGradOp,
        SiluGradOp,
        TanhGradOp,
        SigmoidGradOp,
        LinearOp,
        MatmulOp,
        ReshapeOp,
        TransposeOp,
        BroadcastToOp,
        SumOp,
        MeanOp,
        VarMeanOp,
        CastOp,
        MseLossOp,
        MseLossGradOp,
        CrossEntropyOp,
        CrossEntropyGradOp,
        CheckIndexOp,
        CheckFiniteOp,
    ],
)

__all__ = [
    "NN",
    "AddOp",
    "BinaryOp",
    "BroadcastToOp",
    "CastOp",
    "CheckFiniteOp",
    "CheckIndexOp",
    "CheckOp",
    "ConstantOp",
    "CrossEntropyGradOp",
    "CrossEntropyOp",
    "DetachOp",
    "DivOp",
    "GeluGradOp",
    "GeluOp",
    "LinearOp",
    "MatmulOp",
    "MeanOp",
    "MseLossGradOp",
    "MseLossOp",
    "MulOp",
    "NegOp",
    "ReductionOp",
    "ReluGradOp",
    "ReluOp",
    "ReshapeOp",
    "SigmoidGradOp",
    "SigmoidOp",
    "SiluGradOp",
    "SiluOp",
    "SubOp",
    "SumOp",
    "TanhGradOp",
    "TanhOp",
    "TransposeOp",
    "UnaryOp",
    "VarMeanOp",
    "broadcast_shapes",
]

"""Attention by products: the bands of causal queries see the keys that torch lets them see."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from programs import run_pipeline
from torch.nn.functional import scaled_dot_product_attention
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, f64
from xdsl.ir import Block, Region

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters import run_function
from aicf_mlir.interpreters.arithmetic import EXACT
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes import keep_scores

SHAPES = (
    ((2, 3, 16, 5), (2, 3, 16, 5), [8, 8]),
    ((1, 4, 27, 6), (1, 2, 27, 6), [8, 8, 11]),
    ((1, 2, 16, 4), (1, 2, 40, 4), [8, 8]),
    ((1, 2, 40, 4), (1, 2, 19, 4), [8, 8, 8, 8, 8]),
    ((1, 2, 15, 4), (1, 2, 40, 4), [15]),
    ((1, 1, 16, 4), (1, 1, 16, 4), [16]),
)
"""The query, the keys, and the bands of 8 queries."""


@pytest.mark.parametrize(("query", "keys", "bands"), SHAPES)
def test_bands_of_causal_queries(
    query: tuple[int, ...], keys: tuple[int, ...], bands: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_scores, "BAND", 8)
    monkeypatch.setattr(keep_scores, "HEADS", 2)
    monkeypatch.setattr(keep_scores, "keeps_scores", lambda op, target: True)
    block = Block(arg_types=[TensorType(f64, shape) for shape in (query, keys, keys)])
    attention = nn.AttentionOp(*block.args, causal=True, scale=0.3)
    block.add_ops([attention, func.ReturnOp(attention.out)])
    module = ModuleOp([func.FuncOp("f", (block.arg_types, [attention.out.type]), Region(block))])
    made = run_pipeline(module, 'keep-scores{target="sm_90"},dce')
    softmaxes = [op for op in made.walk() if isinstance(op, nn.SoftmaxOp)]
    assert [shape_of(op.x)[2] for op in softmaxes] == bands
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape) for shape in (query, keys, keys)]
    (found,) = run_function(made, given, EXACT)
    q, k, v = map(torch.from_numpy, given)
    expected = scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12, atol=1e-13)

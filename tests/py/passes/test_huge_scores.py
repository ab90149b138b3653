"""Attention where scores are huge, against torch's products and softmax in float64, which keep what a logsumexp loses.

torch's own fused kernel on the CPU has a rounded logsumexp too, in float64 as well: it is no reference here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kernel_cases.attention import every_call, shifted_calls
from kernel_cases.case import FLOATS, Array, Maker
from kernel_cases.heads import Heads
from torch.nn.attention import SDPBackend, sdpa_kernel

from aicf_mlir.op_call import OpKind, op_call

TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
TOLERANCE = {"f32": 5e-6, "f64": 1e-13, "f16": 4e-3, "bf16": 2e-2}
"""Of the largest number."""

PARTS = 8

HEADS = ("query", "key", "value")


def tensor(array: Array, device: str) -> torch.Tensor:
    """Of the same values and type."""
    if array.dtype == np.bool_:
        return torch.from_numpy(array.copy()).to(device)
    wide = torch.from_numpy(array.astype(np.float64))
    return wide.to(
        TYPES[{"float32": "f32", "float64": "f64", "float16": "f16"}.get(str(array.dtype), "bf16")]
    ).to(device)


def ours(operands: Mapping[str, torch.Tensor], dout: torch.Tensor, heads: Heads) -> dict[str, torch.Tensor]:
    """The result and the gradients, by the kernels."""
    attrs = {"scale": heads.scale, "causal": heads.causal}
    wide = torch.float64 if dout.dtype == torch.float64 else torch.float32
    rows = {name: dout.new_empty(dout.shape[:3], dtype=wide) for name in ("largest", "total")}
    out = torch.empty_like(dout)
    op_call(OpKind.Attention, operands, {"out": out, **rows}, attrs)
    gradients = {f"d{name}": torch.empty_like(operands[name]) for name in HEADS}
    mask = {name: operands[name] for name in operands if name == "mask"}
    given = {name: operands[name] for name in HEADS}
    op_call(OpKind.AttentionGrad, {"dout": dout, **given, "out": out, **rows, **mask}, gradients, attrs)
    return {"out": out, **gradients}


def theirs(operands: Mapping[str, torch.Tensor], dout: torch.Tensor, heads: Heads) -> dict[str, torch.Tensor]:
    """By torch in float64."""
    wide = {name: each.double().detach().requires_grad_() for name, each in operands.items()}
    mask, shape = wide["mask"], (*dout.shape[:3], operands["key"].shape[2])
    shown = mask.broadcast_to(shape)
    if heads.causal:
        shown = shown.masked_fill(torch.ones(shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    with sdpa_kernel(SDPBackend.MATH):
        given = [wide[name] for name in HEADS]
        out = F.scaled_dot_product_attention(*given, attn_mask=shown, scale=heads.scale, enable_gqa=True)
    return dict(
        zip(
            ("out", *(f"d{name}" for name in HEADS)),
            (out.detach(), *torch.autograd.grad(out, given, dout.double())),
            strict=True,
        )
    )


def magnitudes(operands: Mapping[str, torch.Tensor], dout: torch.Tensor, heads: Heads) -> dict[str, float]:
    """By result, the largest of the terms that may cancel in it."""
    largest = {name: each.abs().max().item() for name, each in {**operands, "dout": dout}.items()}
    slope = heads.scale * heads.sizes[1] ** 0.5 * largest["dout"] * largest["value"]
    return {
        "out": largest["value"],
        "dquery": slope * largest["key"],
        "dkey": slope * largest["query"],
        "dvalue": largest["dout"],
    }


def faults(label: str, heads: Heads, device: str) -> list[str]:
    """What is not torch's, of one call."""
    operands = {name: tensor(heads.operand(name), "cpu") for name in HEADS}
    assert heads.mask is not None, "what is shifted is a mask"
    operands["mask"] = tensor(heads.mask, "cpu")
    dout = tensor(heads.operand("out"), "cpu")
    moved = {name: each.to(device) for name, each in operands.items()}
    found, wrong = ours(moved, dout.to(device), heads), list[str]()
    terms = magnitudes(operands, dout, heads)
    for name, wanted in theirs(operands, dout, heads).items():
        scale = max(wanted.abs().max().item(), terms[name])
        error = (found[name].cpu().double() - wanted).abs()
        if not bool((error <= TOLERANCE[heads.make.dtype] * scale).all()):
            wrong.append(f"{label} {heads.make.dtype} {name}: {error.max().item():.3g} of {scale:.3g}")
    return wrong


@pytest.mark.parametrize("dtype", FLOATS)
def test_shifted_scores(dtype: str, device: str) -> None:
    wrong = [fault for label, heads in shifted_calls(Maker(dtype)) for fault in faults(label, heads, device)]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize(("dtype", "part"), list(itertools.product(FLOATS, range(PARTS))))
def test_every_call_shifted(dtype: str, part: int, device: str) -> None:
    calls = itertools.islice(every_call(Maker(dtype)), part, None, PARTS)
    wrong = [fault for label, heads in calls for fault in faults(label, heads, device)]
    assert not wrong, "\n".join(wrong[:20])

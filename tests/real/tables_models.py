"""Tables and series: tabm, rtdl's models, tab-transformer-pytorch, iTransformer."""

from __future__ import annotations

from typing import Any

import rtdl_num_embeddings as embeddings
import rtdl_revisiting_models as rtdl
import tab_transformer_pytorch as tabs
import torch
import torch.nn.functional as F
from iTransformer import iTransformer
from tabm import TabM

from tests.real.case import Batch, Make, sgd, trained

ROWS, NUMBERS, CATEGORIES = 16, 4, [3, 5]


def numbers() -> Batch:
    return {"x": torch.randn(ROWS, NUMBERS), "t": torch.randint(2, (ROWS,))}


def both() -> Batch:
    return numbers() | {"c": torch.stack([torch.randint(n, (ROWS,)) for n in CATEGORIES], 1)}


def classified(model: Any, b: Batch) -> torch.Tensor:
    return F.cross_entropy(model(b["x"]), b["t"])


def each_member(model: Any, b: Batch) -> torch.Tensor:
    """TabM's loss: the mean of its members' own losses."""
    given = (b["x"], b["c"]) if "c" in b else (b["x"],)
    found = model(*given)
    return F.cross_entropy(found.flatten(0, 1), b["t"].repeat_interleave(found.shape[1]))


def tabm(batch: Any = numbers, **options: Any) -> Make:
    sizes = {"n_num_features": NUMBERS, "d_out": 2, "n_blocks": 2, "d_block": 16, "dropout": 0.0, "k": 4}
    return lambda: trained(TabM.make(**{**sizes, **options}), batch, each_member)


BINS = [torch.linspace(-2, 2, 6) for _ in range(NUMBERS)]

CASES: dict[str, Make] = {
    "TabM": tabm(),
    "TabM, categories": tabm(both, cat_cardinalities=CATEGORIES),
    "TabM mini": tabm(arch_type="tabm-mini"),
    "TabM packed": tabm(arch_type="tabm-packed"),
    "TabM, piecewise linear": lambda: tabm(
        num_embeddings=embeddings.PiecewiseLinearEmbeddings(BINS, 4, activation=False, version="B")
    )(),
    "rtdl MLP": lambda: trained(
        rtdl.MLP(d_in=NUMBERS, d_out=2, n_blocks=2, d_block=16, dropout=0.0), numbers, classified
    ),
    "rtdl ResNet": lambda: trained(
        rtdl.ResNet(
            d_in=NUMBERS, d_out=2, n_blocks=2, d_block=16, d_hidden_multiplier=2.0, dropout1=0.0, dropout2=0.0
        ),
        numbers,
        classified,
        sgd,
    ),
    "rtdl FT-Transformer": lambda: trained(
        rtdl.FTTransformer(
            n_cont_features=NUMBERS,
            cat_cardinalities=CATEGORIES,
            d_out=2,
            n_blocks=2,
            d_block=16,
            attention_n_heads=4,
            attention_dropout=0.0,
            ffn_d_hidden_multiplier=2.0,
            ffn_dropout=0.0,
            residual_dropout=0.0,
        ),
        both,
        lambda m, b: F.cross_entropy(m(b["x"], b["c"]), b["t"]),
    ),
    "rtdl periodic embeddings": lambda: trained(
        torch.nn.Sequential(
            embeddings.PeriodicEmbeddings(NUMBERS, 8, lite=False), torch.nn.Flatten(), torch.nn.Linear(32, 2)
        ),
        numbers,
        classified,
    ),
    "TabTransformer": lambda: trained(
        tabs.TabTransformer(
            categories=tuple(CATEGORIES),
            num_continuous=NUMBERS,
            dim=16,
            depth=2,
            heads=4,
            dim_out=2,
            mlp_act=torch.nn.ReLU(),
        ),
        both,
        lambda m, b: F.cross_entropy(m(b["c"], b["x"]), b["t"]),
    ),
    "FT-Transformer": lambda: trained(
        tabs.FTTransformer(
            categories=CATEGORIES, num_continuous=NUMBERS, dim=16, depth=2, heads=4, dim_out=2
        ),
        both,
        lambda m, b: F.cross_entropy(m(b["c"], b["x"]), b["t"]),
    ),
    "iTransformer": lambda: trained(
        iTransformer(
            num_variates=3,
            lookback_len=12,
            depth=2,
            dim=16,
            heads=2,
            dim_head=8,
            pred_length=(4, 6),
            flash_attn=False,
        ),
        lambda: {"x": torch.randn(4, 12, 3), "4": torch.randn(4, 4, 3), "6": torch.randn(4, 6, 3)},
        lambda m, b: m(b["x"], targets=(b["4"], b["6"])),
    ),
}

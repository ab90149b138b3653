"""x-transformers: one trunk with its many options."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from x_transformers import (
    AutoregressiveWrapper,
    ContinuousTransformerWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)

from tests.real.case import Batch, Make, trained

WORDS, LENGTH = 64, 12


def ids() -> Batch:
    return {"ids": torch.randint(0, WORDS, (2, LENGTH))}


def labelled() -> Batch:
    return {"ids": torch.randint(0, WORDS, (2, LENGTH)), "labels": torch.randint(0, WORDS, (2, LENGTH))}


def pairs() -> Batch:
    return {"from": torch.randint(0, WORDS, (2, LENGTH)), "to": torch.randint(0, WORDS, (2, LENGTH))}


def trunk(layers: Any, **options: Any) -> Any:
    return TransformerWrapper(num_tokens=WORDS, max_seq_len=32, attn_layers=layers, **options)


def decoder(**options: Any) -> Make:
    return lambda: trained(
        AutoregressiveWrapper(trunk(Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options))),
        ids,
        lambda m, b: m(b["ids"]),
    )


def encoder(**options: Any) -> Make:
    return lambda: trained(
        trunk(Encoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)),
        labelled,
        lambda m, b: F.cross_entropy(m(b["ids"]).transpose(1, 2), b["labels"]),
    )


CASES: dict[str, Make] = {
    "decoder": decoder(),
    "decoder, rotary": decoder(rotary_pos_emb=True),
    "decoder, ALiBi, GLU": decoder(alibi_pos_bias=True, ff_glu=True, ff_swish=True),
    "decoder, T5 bias, RMSNorm": decoder(rel_pos_bias=True, use_rmsnorm=True),
    "decoder, grouped heads, no bias": decoder(attn_kv_heads=2, ff_no_bias=True),
    "encoder": encoder(),
    "encoder, sandwich, memory": encoder(sandwich_norm=True, attn_num_mem_kv=2),
    "encoder, talking heads, macaron": encoder(attn_pre_talking_heads=True, macaron=True),
    "encoder and decoder": lambda: trained(
        XTransformer(
            dim=32,
            enc_num_tokens=WORDS,
            enc_depth=1,
            enc_heads=4,
            enc_max_seq_len=32,
            dec_num_tokens=WORDS,
            dec_depth=1,
            dec_heads=4,
            dec_max_seq_len=32,
        ),
        pairs,
        lambda m, b: m(b["from"], b["to"]),
    ),
    "continuous": lambda: trained(
        ContinuousTransformerWrapper(
            dim_in=6, dim_out=3, max_seq_len=32, attn_layers=Encoder(dim=32, depth=2, heads=4)
        ),
        lambda: {"x": torch.randn(2, LENGTH, 6), "t": torch.randn(2, LENGTH, 3)},
        lambda m, b: F.mse_loss(m(b["x"]), b["t"]),
    ),
    "images": lambda: trained(
        ViTransformerWrapper(
            image_size=16, patch_size=8, num_classes=3, attn_layers=Encoder(dim=32, depth=2, heads=4)
        ),
        lambda: {"x": torch.randn(2, 3, 16, 16), "t": torch.randint(3, (2,))},
        lambda m, b: F.cross_entropy(m(b["x"]), b["t"]),
    ),
}

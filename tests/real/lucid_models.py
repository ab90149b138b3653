"""Packages of one idea each: attention, mixers, experts, slots."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from axial_attention import AxialAttention
from egnn_pytorch import EGNN_Network
from g_mlp_pytorch import gMLP
from gateloop_transformer import SimpleGateLoopLayer
from h_transformer_1d import HTransformer1D
from hyper_connections import get_init_and_expand_reduce_stream_functions
from linear_attention_transformer import LinearAttentionTransformerLM
from local_attention import LocalTransformer
from memory_efficient_attention_pytorch import Attention
from mlp_mixer_pytorch import MLPMixer
from nystrom_attention import Nystromformer
from perceiver_pytorch import Perceiver
from performer_pytorch import PerformerLM
from product_key_memory import PKM
from slot_attention import SlotAttention
from soft_moe_pytorch import SoftMoE
from st_moe_pytorch import MoE
from torch import nn

from tests.real.case import Batch, Make, Work, sgd, trained

WORDS, LENGTH, WIDTH = 32, 16, 16


def words() -> Batch:
    return {"x": torch.randint(WORDS, (2, LENGTH)), "t": torch.randint(WORDS, (2, LENGTH))}


def values() -> Batch:
    return {"x": torch.randn(2, LENGTH, WIDTH), "t": torch.randn(2, LENGTH, WIDTH)}


def images() -> Batch:
    return {"x": torch.randn(2, 3, 16, 16), "t": torch.randint(3, (2,))}


def next_words(model: Any, b: Batch) -> torch.Tensor:
    return F.cross_entropy(model(b["x"]).transpose(1, 2), b["t"])


def squares(model: Any, b: Batch) -> torch.Tensor:
    return F.mse_loss(model(b["x"]), b["t"])


def classified(model: Any, b: Batch) -> torch.Tensor:
    return F.cross_entropy(model(b["x"]), b["t"])


def of_words(make: Any) -> Make:
    return lambda: trained(make(), words, next_words)


def of_values(make: Any, draws: bool = False) -> Make:
    return lambda: trained(make(), values, squares, sgd, draws=draws)


class Experts(nn.Module):
    """A layer of experts, with the losses that balance them."""

    def __init__(self):
        super().__init__()
        self.moe = MoE(dim=WIDTH, num_experts=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, loss, *_ = self.moe(x)
        return out + loss


class Streams(nn.Module):
    """Two branches under hyper-connections."""

    def __init__(self):
        super().__init__()
        init, self.expand, self.reduce = get_init_and_expand_reduce_stream_functions(2)
        self.layers = nn.ModuleList(
            init(dim=WIDTH, branch=nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.expand(x)
        for layer in self.layers:
            x = layer(x)
        return self.reduce(x)


def molecules() -> Work:
    model = EGNN_Network(num_tokens=8, dim=8, depth=2, num_nearest_neighbors=3)
    return trained(
        model,
        lambda: {"x": torch.randint(8, (2, 6)), "places": torch.randn(2, 6, 3), "t": torch.randn(2, 6, 3)},
        lambda m, b: F.mse_loss(m(b["x"], b["places"])[1], b["t"]),
    )


CASES: dict[str, Make] = {
    "local attention": of_words(
        lambda: LocalTransformer(
            num_tokens=WORDS,
            max_seq_len=LENGTH,
            dim=WIDTH,
            depth=1,
            heads=2,
            dim_head=8,
            local_attn_window_size=4,
        )
    ),
    "linear attention": of_words(
        lambda: LinearAttentionTransformerLM(
            num_tokens=WORDS,
            dim=WIDTH,
            depth=1,
            heads=2,
            max_seq_len=LENGTH,
            dim_head=8,
            causal=True,
            blindspot_size=1,
        )
    ),
    "performer": of_words(
        lambda: PerformerLM(
            num_tokens=WORDS,
            max_seq_len=LENGTH,
            dim=WIDTH,
            depth=1,
            heads=2,
            dim_head=8,
            auto_check_redraw=False,
        )
    ),
    "hierarchical attention": of_words(
        lambda: HTransformer1D(
            num_tokens=WORDS,
            dim=WIDTH,
            depth=1,
            max_seq_len=LENGTH,
            heads=2,
            dim_head=8,
            block_size=4,
            causal=True,
        )
    ),
    "gMLP": lambda: trained(
        gMLP(num_tokens=WORDS, dim=WIDTH, depth=2, seq_len=LENGTH),
        words,
        lambda m, b: m(b["x"]).square().mean(),
    ),
    "Nystromformer": of_values(
        lambda: Nystromformer(
            dim=WIDTH, depth=1, heads=2, dim_head=8, num_landmarks=4, attn_values_residual=False
        )
    ),
    "axial attention": lambda: trained(
        AxialAttention(dim=8, heads=2, dim_index=1),
        lambda: {"x": torch.randn(2, 8, 4, 4), "t": torch.randn(2, 8, 4, 4)},
        squares,
    ),
    "memory-efficient attention": of_values(lambda: Attention(dim=WIDTH, heads=2, dim_head=8, causal=True)),
    "MLP-Mixer": lambda: trained(
        MLPMixer(image_size=16, channels=3, patch_size=4, dim=WIDTH, depth=1, num_classes=3),
        images,
        classified,
    ),
    "perceiver": lambda: trained(
        Perceiver(
            input_channels=3,
            input_axis=2,
            num_freq_bands=2,
            max_freq=8.0,
            depth=1,
            num_latents=4,
            latent_dim=WIDTH,
            cross_dim_head=8,
            latent_dim_head=8,
            latent_heads=2,
            num_classes=3,
        ),
        lambda: {"x": torch.randn(2, 8, 8, 3), "t": torch.randint(3, (2,))},
        classified,
    ),
    "product keys": of_values(lambda: PKM(dim=WIDTH, heads=2, num_keys=8, topk=4, dim_head=8)),
    "slot attention": lambda: trained(
        SlotAttention(num_slots=3, dim=WIDTH, iters=2, hidden_dim=WIDTH),
        values,
        lambda m, b: m(b["x"]).square().mean(),
        sgd,
        draws=True,
    ),
    "soft experts": of_values(
        lambda: SoftMoE(dim=WIDTH, seq_len=LENGTH, num_experts=2, is_distributed=False)
    ),
    "ST-MoE": of_values(Experts, draws=True),
    "gate loop": of_values(lambda: SimpleGateLoopLayer(dim=WIDTH)),
    "hyper-connections": of_values(Streams),
    "EGNN": molecules,
}

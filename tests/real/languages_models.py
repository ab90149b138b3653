"""Language models of `transformers` beyond plain attention: state spaces, experts, latent and linear attention."""

from __future__ import annotations

from typing import Any

from tests.real.case import Make
from tests.real.transformers_models import GROUPED, LAYERS, SIZES, WORDS, case, causal, next_word

EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "topk_group": 1,
}
SPACES: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2}

CASES: dict[str, Make] = {
    "Mamba2": causal("Mamba2", **SPACES, state_size=8, num_heads=8, head_dim=8, n_groups=1, chunk_size=4),
    "FalconMamba": causal("FalconMamba", **SPACES, state_size=4),
    "Jamba": causal(
        "Jamba",
        **GROUPED,
        num_experts=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        use_mamba_kernels=False,
        mamba_d_state=4,
    ),
    "Bamba": causal(
        "Bamba",
        **GROUPED,
        attn_layer_indices=[1],
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=4,
        mamba_n_groups=1,
    ),
    "Zamba2": causal(
        "Zamba2",
        **GROUPED,
        mamba_d_state=8,
        n_mamba_heads=4,
        chunk_size=4,
        mamba_ngroups=1,
        layers_block_type=["mamba", "hybrid"],
    ),
    "RecurrentGemma": causal(
        "RecurrentGemma",
        **{**GROUPED, "num_hidden_layers": 3},
        head_dim=8,
        lru_width=32,
        attention_window_size=8,
    ),
    "DeepSeek-V2": causal("DeepseekV2", **SIZES, **EXPERTS, **LATENT, n_group=1),
    "DeepSeek-V3": causal("DeepseekV3", **SIZES, **EXPERTS, **LATENT, n_group=2),
    "GPT-OSS": causal(
        "GptOss", **GROUPED, num_local_experts=4, num_experts_per_tok=2, head_dim=8, sliding_window=8
    ),
    "OLMoE": causal("Olmoe", **GROUPED, num_experts=4, num_experts_per_tok=2),
    "Qwen3-MoE": causal("Qwen3Moe", **GROUPED, **EXPERTS, num_experts=4, head_dim=8),
    "Qwen3-Next": causal(
        "Qwen3Next",
        **GROUPED,
        **EXPERTS,
        head_dim=8,
        num_experts=4,
        shared_expert_intermediate_size=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention"],
    ),
    "Mixtral, loss of its router": case(
        "Mixtral", {**GROUPED, "num_local_experts": 4, "output_router_logits": True}, "ForCausalLM", next_word
    ),
    "BitNet": causal("BitNet", **GROUPED),
    "DiffLlama": causal("DiffLlama", **GROUPED),
    "Nemotron": causal("Nemotron", **GROUPED),
    "GLM-4": causal("Glm4", **GROUPED, head_dim=8),
    "GPT-BigCode": causal("GPTBigCode", vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32),
    "BioGPT": causal("BioGpt", **SIZES),
    "XGLM": causal(
        "XGLM",
        vocab_size=WORDS,
        d_model=32,
        num_layers=2,
        attention_heads=4,
        ffn_dim=64,
        max_position_embeddings=40,
    ),
    "Persimmon": causal("Persimmon", **{**SIZES, **LAYERS}),
}

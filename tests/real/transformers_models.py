"""Architectures of `transformers`, with labels; dropout off but where a case is about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from tests.real.case import Batch, Make, Work, adamw, sgd, trained

hf.logging.set_verbosity_error()

ROWS, LENGTH, WORDS, SIDE = 2, 12, 64, 32
LAYERS: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    **LAYERS,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
SEEN: dict[str, Any] = {
    **LAYERS,
    "intermediate_size": 64,
    "image_size": SIDE,
    "patch_size": 8,
}


def without_dropout(config: Any) -> Any:
    """The config with every rate of a dropout, and those of its parts, at zero."""
    for key, value in vars(config).items():
        if isinstance(value, hf.PretrainedConfig):
            without_dropout(value)
        elif isinstance(value, float) and "drop" in key:
            setattr(config, key, 0.0)
    return config


def made(name: str, sizes: dict[str, Any], task: str, dropout: bool = False, config: str = "") -> Any:
    """The model `{name}For{task}` of `{name}Config(**sizes)`."""
    described = getattr(hf, f"{config or name}Config")(**sizes)
    return getattr(hf, name + task)(described if dropout else without_dropout(described))


def own_loss(model: Any, batch: Batch) -> torch.Tensor:
    return model(**batch).loss


def words() -> torch.Tensor:
    return torch.randint(3, WORDS, (ROWS, LENGTH))


def next_word() -> Batch:
    ids = words()
    return {"input_ids": ids, "labels": ids.clone()}


def padded() -> Batch:
    ids, mask = words(), torch.ones(ROWS, LENGTH, dtype=torch.int64)
    mask[1, -int(torch.randint(1, 5, ())) :] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def one_of_two() -> Batch:
    return {"input_ids": words(), "labels": torch.randint(2, (ROWS,))}


def tags() -> Batch:
    return {"input_ids": words(), "labels": torch.randint(2, (ROWS, LENGTH))}


def spans() -> Batch:
    begin = torch.randint(0, LENGTH // 2, (ROWS,))
    return {"input_ids": words(), "start_positions": begin, "end_positions": begin + 2}


def choices() -> Batch:
    return {"input_ids": torch.randint(3, WORDS, (ROWS, 3, LENGTH)), "labels": torch.randint(3, (ROWS,))}


def image() -> Batch:
    return {"pixel_values": torch.randn(ROWS, 3, SIDE, SIDE), "labels": torch.randint(2, (ROWS,))}


def sound() -> Batch:
    return {"input_values": torch.randn(ROWS, 800), "labels": torch.randint(2, (ROWS,))}


def image_and_text() -> Batch:
    return {"input_ids": words(), "pixel_values": torch.randn(ROWS, 3, SIDE, SIDE)}


def series() -> Batch:
    return {"past_values": torch.randn(ROWS, 16, 2), "future_values": torch.randn(ROWS, 4, 2)}


def case(
    name: str,
    sizes: dict[str, Any],
    task: str,
    batch: Callable[[], Batch],
    optimizer: Any = adamw,
    **options: Any,
) -> Make:
    return lambda: trained(made(name, sizes, task, **options), batch, own_loss, optimizer)


def causal(name: str, batch: Callable[[], Batch] = next_word, optimizer: Any = adamw, **sizes: Any) -> Make:
    return case(name, sizes, "ForCausalLM", batch, optimizer)


def classifier(
    name: str, task: str = "ForSequenceClassification", batch: Any = one_of_two, **sizes: Any
) -> Make:
    return case(name, sizes, task, batch)


def photograph() -> Batch:
    """Four images of 4 x 4 places at a 32nd of their size. Statistics of two numbers amplify rounding without bound."""
    return {"pixel_values": torch.randn(4, 3, 4 * SIDE, 4 * SIDE), "labels": torch.randint(2, (4,))}


def seen(name: str, task: str = "ForImageClassification", **sizes: Any) -> Make:
    return case(name, sizes, task, image)


GPT2 = {
    "vocab_size": WORDS,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BART = {
    "vocab_size": WORDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 40,
}
T5 = {
    "vocab_size": WORDS,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
}
DISTIL = {
    "vocab_size": WORDS,
    "dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 64,
    "max_position_embeddings": 40,
}
OPT = {
    "vocab_size": WORDS,
    **LAYERS,
    "ffn_dim": 64,
    "max_position_embeddings": 40,
    "word_embed_proj_dim": 32,
}
WAV2VEC2 = {
    **LAYERS,
    "intermediate_size": 64,
    "conv_dim": (16, 16),
    "conv_stride": (4, 4),
    "conv_kernel": (8, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "mask_time_prob": 0.0,
}
CLIP_TEXT = {**SIZES, "max_position_embeddings": 32}


def two_towers(name: str, **options: Any) -> Make:
    """CLIP and its kin: contrastive loss of images and texts."""

    def make() -> Work:
        sizes = {"text_config": CLIP_TEXT, "vision_config": SEEN, **options}
        return trained(made(name, sizes, "Model"), image_and_text, lambda m, b: m(**b, return_loss=True).loss)

    return make


def in_precision(make: Make, dtype: torch.dtype) -> Make:
    """Under autocast, as a trainer with `bf16=True` has it."""

    def other() -> Work:
        work = make()

        def loss(model: Any, batch: Batch) -> torch.Tensor:
            with torch.autocast("cpu", dtype=dtype):
                return own_loss(model, batch)

        return Work(work.model, work.batch, work.optimizers, loss=loss, low=True)

    return other


def checkpointed(make: Make) -> Make:
    """With `gradient_checkpointing_enable()`."""

    def other() -> Work:
        work = make()
        work.model.gradient_checkpointing_enable()  # pyright: ignore
        return work

    return other


def with_dropout(name: str, sizes: dict[str, Any], task: str, batch: Callable[[], Batch]) -> Make:
    return lambda: trained(made(name, sizes, task, dropout=True), batch, own_loss, adamw, draws=True)


CASES: dict[str, Make] = {
    "GPT-2": case("GPT2", GPT2, "LMHeadModel", next_word),
    "GPT-2, dropout": with_dropout("GPT2", GPT2, "LMHeadModel", next_word),
    "GPT-2, padded": case("GPT2", GPT2, "LMHeadModel", padded, sgd),
    "GPT-2, checkpointed": checkpointed(case("GPT2", GPT2, "LMHeadModel", next_word)),
    "GPT-Neo": causal(
        "GPTNeo",
        vocab_size=WORDS,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        max_position_embeddings=40,
    ),
    "GPT-NeoX": causal("GPTNeoX", **SIZES),
    "GPT-J": causal("GPTJ", vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32, rotary_dim=4),
    "CodeGen": causal(
        "CodeGen", vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32, rotary_dim=4
    ),
    "OPT": causal("OPT", **OPT),
    "BLOOM": causal("Bloom", vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4),
    "Falcon": causal("Falcon", vocab_size=WORDS, **LAYERS),
    "MPT": causal("Mpt", vocab_size=WORDS, d_model=32, n_layers=2, n_heads=4, max_seq_len=32),
    "Llama": causal("Llama", **GROUPED),
    "Llama, padded": causal("Llama", padded, sgd, **GROUPED),
    "Llama, bf16 autocast": in_precision(causal("Llama", next_word, sgd, **GROUPED), torch.bfloat16),
    "Llama, classifier": classifier("Llama", **GROUPED),
    "Mistral": causal("Mistral", **GROUPED, sliding_window=8),
    "Mixtral": causal("Mixtral", **GROUPED, num_local_experts=4),
    "Qwen2": causal("Qwen2", **GROUPED),
    "Qwen2-MoE": causal(
        "Qwen2Moe",
        **GROUPED,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=32,
        num_experts=4,
        num_experts_per_tok=2,
    ),
    "Qwen3": causal("Qwen3", **GROUPED, head_dim=8),
    "Gemma": causal("Gemma", **GROUPED, head_dim=8),
    "Gemma2": causal("Gemma2", **GROUPED, head_dim=8, sliding_window=8),
    "Gemma3": case(
        "Gemma3",
        {**GROUPED, "head_dim": 8, "sliding_window": 8},
        "ForCausalLM",
        next_word,
        config="Gemma3Text",
    ),
    "Phi": causal("Phi", **SIZES),
    "Phi-3": causal("Phi3", **GROUPED),
    "StableLM": causal("StableLm", **GROUPED),
    "OLMo2": causal("Olmo2", **GROUPED),
    "Cohere": causal("Cohere", **GROUPED),
    "Starcoder2": causal("Starcoder2", **GROUPED),
    "Granite": causal("Granite", **GROUPED),
    "SmolLM3": causal("SmolLM3", **GROUPED),
    "Mamba": causal("Mamba", vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, state_size=4),
    "RWKV": causal("Rwkv", vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, context_length=32),
    "BERT": classifier("Bert", **SIZES),
    "BERT, dropout": with_dropout("Bert", SIZES, "ForSequenceClassification", one_of_two),
    "BERT, masked words": classifier("Bert", "ForMaskedLM", padded, **SIZES),
    "BERT, tags": classifier("Bert", "ForTokenClassification", tags, **SIZES),
    "BERT, questions": classifier("Bert", "ForQuestionAnswering", spans, **SIZES),
    "BERT, choices": classifier("Bert", "ForMultipleChoice", choices, **SIZES),
    "RoBERTa": classifier("Roberta", **SIZES),
    "DistilBERT": classifier("DistilBert", **DISTIL),
    "ALBERT": classifier("Albert", **SIZES, embedding_size=16),
    "ELECTRA": classifier("Electra", **SIZES, embedding_size=16),
    "MPNet": classifier("MPNet", **SIZES),
    "DeBERTa-v2": classifier("DebertaV2", **SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "ModernBERT": classifier("ModernBert", **SIZES),
    "ConvBERT": classifier("ConvBert", **SIZES, embedding_size=16),
    "FNet": classifier(
        "FNet", vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, intermediate_size=64, pad_token_id=0
    ),
    "XLNet": classifier("XLNet", vocab_size=WORDS, d_model=32, n_layer=2, n_head=4, d_inner=64),
    "Funnel": classifier(
        "Funnel", vocab_size=WORDS, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=64
    ),
    "T5": case("T5", T5, "ForConditionalGeneration", next_word),
    "mT5, gated": case(
        "MT5", {**T5, "feed_forward_proj": "gated-gelu"}, "ForConditionalGeneration", next_word
    ),
    "BART": case("Bart", BART, "ForConditionalGeneration", next_word),
    "Pegasus": case("Pegasus", BART, "ForConditionalGeneration", next_word),
    "ViT": seen("ViT", **SEEN),
    "DeiT": seen("DeiT", **SEEN),
    "BEiT": seen("Beit", **SEEN),
    "DINOv2": seen("Dinov2", **SEEN),
    "ViT-MAE": case(
        "ViTMAE",
        {
            **SEEN,
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 1,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 32,
        },
        "ForPreTraining",
        lambda: {"pixel_values": torch.randn(ROWS, 3, SIDE, SIDE), "noise": torch.rand(ROWS, 16)},
    ),
    "Swin": seen(
        "Swin", image_size=SIDE, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4
    ),
    "ResNet": seen("ResNet", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
    "ConvNeXt": seen("ConvNext", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
    "MobileNetV2": case(
        "MobileNetV2",
        {"image_size": 4 * SIDE, "depth_multiplier": 0.35},
        "ForImageClassification",
        photograph,
    ),
    "CLIP": two_towers("CLIP", projection_dim=16),
    "SigLIP": two_towers("Siglip"),
    "wav2vec2": case("Wav2Vec2", WAV2VEC2, "ForSequenceClassification", sound),
    "PatchTST": case(
        "PatchTST",
        {
            "num_input_channels": 2,
            "context_length": 16,
            "prediction_length": 4,
            "patch_length": 4,
            "patch_stride": 4,
            "d_model": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 32,
        },
        "ForPrediction",
        series,
    ),
    "PatchTSMixer": case(
        "PatchTSMixer",
        {
            "num_input_channels": 2,
            "context_length": 16,
            "prediction_length": 4,
            "patch_length": 4,
            "patch_stride": 4,
            "d_model": 16,
            "num_layers": 2,
        },
        "ForPrediction",
        series,
    ),
    "Decision Transformer": lambda: trained(
        hf.DecisionTransformerModel(
            without_dropout(
                hf.DecisionTransformerConfig(
                    state_dim=5, act_dim=2, hidden_size=32, n_layer=2, n_head=4, max_ep_len=32
                )
            )
        ),
        lambda: {
            "states": torch.randn(ROWS, 6, 5),
            "actions": torch.randn(ROWS, 6, 2),
            "rewards": torch.randn(ROWS, 6, 1),
            "returns_to_go": torch.randn(ROWS, 6, 1),
            "timesteps": torch.arange(6).repeat(ROWS, 1),
        },
        lambda m, b: (m(**b).action_preds - b["actions"]).square().mean(),
    ),
}

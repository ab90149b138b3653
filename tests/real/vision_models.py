"""Images: vit-pytorch, timm, and diffusers' transformers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import diffusers
import timm
import torch
import torch.nn.functional as F

from tests.real.case import Batch, Make, sgd, trained

SIDE = 32
SMALL = {
    "image_size": SIDE,
    "patch_size": 8,
    "num_classes": 3,
    "dim": 32,
    "depth": 2,
    "heads": 4,
    "mlp_dim": 64,
}


def images() -> Batch:
    return {"x": torch.randn(2, 3, SIDE, SIDE), "t": torch.randint(3, (2,))}


def larger() -> Batch:
    """Images of which a network that divides their sizes by 32 leaves several elements to each norm of a batch."""
    return {"x": torch.randn(4, 3, 64, 64), "t": torch.randint(3, (4,))}


def classified(model: Any, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch["x"]), batch["t"])


def vit(module: str, name: str, **sizes: Any) -> Make:
    def make() -> Any:
        cls = getattr(importlib.import_module(f"vit_pytorch.{module}"), name)
        return trained(cls(**sizes), images, classified)

    return make


def of_timm(name: str, batch: Callable[[], Batch] = images, **sizes: Any) -> Make:
    return lambda: trained(timm.create_model(name, num_classes=3, **sizes), batch, classified, sgd)


FAMILIES = (
    *("test_byobnet", "test_efficientnet", "test_nfnet", "test_convnext2", "test_mambaout"),
    *("inception_next_atto", "mobilenetv2_035", "lcnet_035", "regnetx_002"),
)
"""Small models of timm, one of each family."""

SMALL_UNET = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}


def coder(name: str, **sizes: Any) -> Make:
    """An autoencoder of diffusers: the mean square error of its own input."""
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    return lambda: trained(
        getattr(diffusers, name)(**SMALL_UNET, **blocks, **sizes),
        lambda: {"x": torch.randn(2, 3, 16, 16)},
        lambda m, b: F.mse_loss(m(b["x"]).sample, b["x"]),
        sgd,
    )


TINY_VIT = {"img_size": SIDE, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}


def mixer(block: str, layer: str, ratio: Any) -> Make:
    parts = importlib.import_module("timm.models.mlp_mixer")
    kinds = {"block_layer": getattr(parts, block), "mlp_layer": getattr(parts, layer)}
    sizes = {
        "img_size": SIDE,
        "patch_size": 8,
        "embed_dim": 32,
        "num_blocks": 2,
        "num_classes": 3,
        "mlp_ratio": ratio,
    }
    return lambda: trained(parts.MlpMixer(**sizes, **kinds), images, classified)


def distilled() -> Any:
    from vit_pytorch.distill import DistillableViT, DistillWrapper
    from vit_pytorch.simple_vit import SimpleViT

    model = DistillWrapper(
        student=DistillableViT(**SMALL), teacher=SimpleViT(**SMALL), temperature=3, alpha=0.5
    )
    return trained(model, images, lambda m, b: m(b["x"], b["t"]))


def noised(name: str, inputs: dict[str, Any], **sizes: Any) -> Make:
    """A denoiser of diffusers: the mean square error of the noise that it finds."""

    def batch() -> Batch:
        drawn = {key: torch.randn(2, *shape) for key, shape in inputs.items() if isinstance(shape, tuple)}
        return drawn | {"timestep": torch.randint(0, 1000, (2,)), "labels": torch.randint(3, (2,))}

    def loss(model: Any, b: Batch) -> torch.Tensor:
        given = {key: b[key] for key in inputs if key in b and key != "x"}
        if name == "DiTTransformer2DModel":
            given["class_labels"] = b["labels"]
        first = model(b["x"], timestep=b["timestep"], **given).sample
        return F.mse_loss(first[:, : b["x"].shape[1]], b["x"])

    draws = name == "DiTTransformer2DModel"  # it drops labels
    return lambda: trained(getattr(diffusers, name)(**sizes), batch, loss, sgd, draws=draws)


CASES: dict[str, Make] = {
    "vit-pytorch ViT": vit("vit", "ViT", **SMALL),
    "vit-pytorch SimpleViT": vit("simple_vit", "SimpleViT", **SMALL),
    "vit-pytorch DeepViT": vit("deepvit", "DeepViT", **SMALL),
    "vit-pytorch CaiT": vit("cait", "CaiT", **SMALL, cls_depth=1),
    "vit-pytorch parallel": vit("parallel_vit", "ViT", **SMALL),
    "vit-pytorch learnable memory": vit("learnable_memory_vit", "ViT", **SMALL),
    "vit-pytorch small data": vit("vit_for_small_dataset", "ViT", **SMALL),
    "vit-pytorch registers": vit("simple_vit_with_register_tokens", "SimpleViT", **SMALL),
    "vit-pytorch query-key norm": vit("simple_vit_with_qk_norm", "SimpleViT", **SMALL),
    "vit-pytorch value residual": vit("simple_vit_with_value_residual", "SimpleViT", **SMALL),
    "vit-pytorch patch merger": vit(
        "vit_with_patch_merger", "ViT", **SMALL, patch_merge_layer=1, patch_merge_num_tokens=4
    ),
    "vit-pytorch normalized": vit("normalized_vit", "nViT", **SMALL, dim_head=8),
    "vit-pytorch Fourier": vit("simple_vit_with_fft", "SimpleViT", **SMALL, freq_patch_size=8),
    "vit-pytorch CCT": vit(
        "cct",
        "CCT",
        img_size=SIDE,
        embedding_dim=32,
        n_conv_layers=1,
        kernel_size=7,
        stride=2,
        padding=3,
        pooling_kernel_size=3,
        pooling_stride=2,
        pooling_padding=1,
        num_layers=2,
        num_heads=2,
        mlp_ratio=2.0,
        num_classes=3,
        attention_dropout=0.0,  # these draw
        stochastic_depth_rate=0.0,
    ),
    "vit-pytorch distillation": distilled,
    "timm ViT": of_timm("vit_tiny_patch16_224", **TINY_VIT),
    "timm BEiT": of_timm("beit_base_patch16_224", **TINY_VIT),
    "timm DeiT-3": of_timm("deit3_small_patch16_224", **TINY_VIT),
    "timm Mixer": mixer("MixerBlock", "Mlp", (0.5, 4.0)),
    "timm gMLP": mixer("SpatialGatingBlock", "GatedMlp", 6),
    "timm ResNet": of_timm("resnet10t", channels=(8, 16, 24, 32), stem_width=8),
    "timm ConvNeXt": of_timm("convnext_atto", dims=(8, 16, 24, 32), depths=(1, 1, 1, 1)),
    "timm MobileNetV3": of_timm("mobilenetv3_small_050"),
    "timm Swin": of_timm(
        "swin_tiny_patch4_window7_224",
        img_size=SIDE,
        window_size=4,
        embed_dim=16,
        depths=(1, 1),
        num_heads=(2, 2),
        drop_path_rate=0.0,  # it draws
    ),
    "diffusers DiT": noised(
        "DiTTransformer2DModel",
        {"x": (4, 8, 8)},
        num_attention_heads=4,
        attention_head_dim=8,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        sample_size=8,
        patch_size=2,
        norm_num_groups=4,
        num_embeds_ada_norm=1000,
    ),
    "diffusers PixArt": noised(
        "PixArtTransformer2DModel",
        {"x": (4, 8, 8), "encoder_hidden_states": (5, 16)},
        num_attention_heads=4,
        attention_head_dim=8,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        sample_size=8,
        patch_size=2,
        cross_attention_dim=32,
        caption_channels=16,
        use_additional_conditions=False,
    ),
    "diffusers Stable Diffusion 3": noised(
        "SD3Transformer2DModel",
        {"x": (4, 8, 8), "encoder_hidden_states": (5, 16), "pooled_projections": (16,)},
        sample_size=8,
        patch_size=2,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=16,
        caption_projection_dim=32,
        pooled_projection_dim=16,
        out_channels=4,
    ),
    "diffusers U-Net": noised(
        "UNet2DModel",
        {"x": (4, 8, 8)},
        sample_size=8,
        in_channels=4,
        out_channels=4,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        attention_head_dim=4,
    ),
    **{f"timm {name}": of_timm(name, larger, drop_rate=0.0, drop_path_rate=0.0) for name in FAMILIES},
    "diffusers conditioned U-Net": noised(
        "UNet2DConditionModel",
        {"x": (4, 8, 8), "encoder_hidden_states": (5, 16)},
        sample_size=8,
        cross_attention_dim=16,
        attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        **SMALL_UNET,
    ),
    "diffusers VAE": coder("AutoencoderKL"),
    "diffusers tiny autoencoder": lambda: trained(
        diffusers.AutoencoderTiny(
            encoder_block_out_channels=(8, 8),
            decoder_block_out_channels=(8, 8),
            num_encoder_blocks=(1, 1),
            num_decoder_blocks=(1, 1),
        ),
        lambda: {"x": torch.randn(2, 3, 16, 16)},
        lambda m, b: F.mse_loss(m(b["x"]).sample, b["x"]),
        sgd,
    ),
    "diffusers VQ": coder("VQModel", num_vq_embeddings=8),
    "diffusers prior": lambda: trained(
        diffusers.PriorTransformer(
            num_attention_heads=4,
            attention_head_dim=8,
            num_layers=2,
            embedding_dim=8,
            num_embeddings=5,
            additional_embeddings=4,
        ),
        lambda: {
            "x": torch.randn(2, 8),
            "timestep": torch.randint(0, 1000, (2,)),
            "text": torch.randn(2, 8),
            "states": torch.randn(2, 5, 8),
        },
        lambda m, b: F.mse_loss(
            m(
                b["x"], b["timestep"], proj_embedding=b["text"], encoder_hidden_states=b["states"]
            ).predicted_image_embedding,
            b["x"],
        ),
    ),
}

"""Networks of images at small sizes: timm's, torchvision's of all kinds, segmentation-models-pytorch, diffusers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import diffusers
import segmentation_models_pytorch as smp
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from tests.real.case import Batch, Make, sgd, trained

SIDE = 64


def images(side: int = SIDE, count: int = 4) -> Callable[[], Batch]:
    """Of a size that leaves several elements to each norm of a batch."""
    return lambda: {"x": torch.randn(count, 3, side, side), "t": torch.randint(3, (count,))}


def undrawn(model: Any) -> Any:
    """The model with nothing that draws random numbers."""
    if hasattr(model, "drop_rate"):
        model.drop_rate = 0.0
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("drop_prob", "p"):
            if type(module).__name__ in ("DropPath", "StochasticDepth") and hasattr(module, name):
                setattr(module, name, 0.0)
    return model


def classified(model: Any, batch: Batch) -> torch.Tensor:
    """The cross entropy of its scores; of all of them where a network in training has several."""
    made = model(batch["x"])
    scores = [made] if isinstance(made, torch.Tensor) else list(made)
    return torch.stack([F.cross_entropy(each, batch["t"]) for each in scores]).mean()


def of_timm(name: str, side: int = SIDE, **sizes: Any) -> Make:
    return lambda: trained(
        undrawn(timm.create_model(name, num_classes=3, **sizes)), images(side), classified, sgd
    )


def of_torchvision(make: Callable[[Any], nn.Module], side: int = SIDE, count: int = 4) -> Make:
    return lambda: trained(undrawn(make(torchvision.models)), images(side, count), classified, sgd)


TIMM: dict[str, dict[str, Any]] = {
    "ghostnet_050": {},
    "mnasnet_small": {},
    "tinynet_e": {},
    "dla46_c": {},
    "skresnet18": {},
    "resnest14d": {},
    "res2net50_14w_8s": {"layers": (1, 1, 1, 1)},
    "ese_vovnet19b_slim_dw": {},
    "cs3darknet_focus_s": {},
    "edgenext_xx_small": {},
    "fastvit_t8": {"layers": (1, 1, 1, 1)},
    "mobilevit_xxs": {},
    "poolformer_s12": {},
    "repvit_m0_9": {"depth": (1, 1, 1, 1)},
    "efficientvit_b0": {},
    "convit_tiny": {"img_size": SIDE, "depth": 2, "local_up_to_layer": 1},
    "fasternet_t0": {},
    "densenet121": {"growth_rate": 8, "block_config": (1, 2, 1, 1)},
    "levit_128s": {"img_size": SIDE},
    "pit_ti_224": {"img_size": SIDE},
    "xcit_nano_12_p16_224": {"img_size": SIDE, "depth": 2},
    "pvt_v2_b0": {"depths": (1, 1, 1, 1)},
    "visformer_tiny": {"img_size": SIDE, "depth": (1, 1, 1)},
    "cait_xxs24_224": {"img_size": SIDE, "depth": 2},
    "twins_pcpvt_small": {"img_size": SIDE, "depths": (1, 1, 1, 1)},
    "davit_tiny": {"embed_dims": (16, 32), "depths": (1, 1), "num_heads": (2, 2)},
    "sequencer2d_s": {"img_size": SIDE, "layers": (1, 1, 1, 1)},
    "lambda_resnet26t": {},
    "hardcorenas_a": {},
    "tiny_vit_5m_224": {},
    "vit_tiny_r_s16_p8_224": {"img_size": SIDE, "depth": 2},
    "eva02_tiny_patch14_224": {"img_size": 56, "depth": 2},
    "samvit_base_patch16_224": {"img_size": SIDE, "embed_dim": 32, "depth": 2, "num_heads": 2},
    "gernet_s": {},
    "dpn48b": {},
}


def segmented(model: Any, batch: Batch) -> torch.Tensor:
    """The cross entropy of each place, and of an auxiliary head."""
    made: Mapping[str, torch.Tensor] = model(batch["x"])
    return torch.stack([F.cross_entropy(each, batch["t"]) for each in made.values()]).sum()


def segmentation(make: Callable[[Any], nn.Module]) -> Make:
    def batch() -> Batch:
        return {"x": torch.randn(2, 3, SIDE, SIDE), "t": torch.randint(3, (2, SIDE, SIDE))}

    return lambda: trained(undrawn(make(torchvision.models)), batch, segmented, sgd)


def residual(m: Any, block: str = "Bottleneck", **options: Any) -> Any:
    """A ResNet of one block in each stage."""
    return m.resnet.ResNet(getattr(m.resnet, block), [1, 1, 1, 1], num_classes=3, **options)


def dilated(m: Any) -> Any:
    return residual(m, replace_stride_with_dilation=[False, True, True])


def efficient(m: Any, fused: bool) -> Any:
    e = m.efficientnet
    first = e.FusedMBConvConfig(2, 3, 2, 16, 16, 1) if fused else e.MBConvConfig(1, 3, 1, 16, 8, 1)
    inputs = 16 if fused else 8
    blocks = [first, e.MBConvConfig(6, 3, 2, inputs, 16, 2), e.MBConvConfig(6, 5, 2, 16, 24, 1)]
    return e.EfficientNet(blocks, dropout=0.0, stochastic_depth_prob=0.0, num_classes=3, last_channel=64)


def small_head(model: Any, features: int) -> Any:
    """With a classifier of fewer numbers."""
    model.classifier = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 3))
    return model


def swin(m: Any, second: bool) -> Any:
    s = m.swin_transformer
    newer = {"block": s.SwinTransformerBlockV2, "downsample_layer": s.PatchMergingV2} if second else {}
    return s.SwinTransformer(
        patch_size=[4, 4],
        embed_dim=16,
        depths=[2, 1],
        num_heads=[2, 2],
        window_size=[4, 4],
        stochastic_depth_prob=0.0,
        num_classes=3,
        **newer,
    )


CLASSIFIERS: dict[str, Make] = {
    "ResNet": of_torchvision(lambda m: residual(m, "BasicBlock")),
    "ResNeXt": of_torchvision(lambda m: residual(m, groups=8, width_per_group=4)),
    "AlexNet": of_torchvision(lambda m: small_head(m.alexnet(), 9216)),
    "VGG": of_torchvision(
        lambda m: small_head(m.VGG(m.vgg.make_layers([8, "M", 16, "M", 16, "M"]), init_weights=False), 784)
    ),
    "VGG, normed": of_torchvision(
        lambda m: small_head(m.VGG(m.vgg.make_layers([8, "M", 16, "M"], batch_norm=True)), 784)
    ),
    "DenseNet": of_torchvision(
        lambda m: m.DenseNet(growth_rate=8, block_config=(2, 2, 2, 2), num_init_features=16, num_classes=3)
    ),
    "DenseNet, checkpointed": of_torchvision(
        lambda m: m.DenseNet(
            growth_rate=8, block_config=(2, 2), num_init_features=16, num_classes=3, memory_efficient=True
        )
    ),
    "EfficientNet": of_torchvision(lambda m: efficient(m, False)),
    "EfficientNetV2": of_torchvision(lambda m: efficient(m, True)),
    "GoogLeNet": of_torchvision(
        lambda m: m.GoogLeNet(num_classes=3, aux_logits=True, init_weights=False), 96, 2
    ),
    "Inception": of_torchvision(
        lambda m: m.Inception3(num_classes=3, aux_logits=False, init_weights=False), 96, 2
    ),
    "MNASNet": of_torchvision(lambda m: m.mnasnet0_5(num_classes=3, dropout=0.0)),
    "MobileNetV2": of_torchvision(lambda m: m.mobilenet_v2(num_classes=3, width_mult=0.25)),
    "MobileNetV3": of_torchvision(lambda m: m.mobilenet_v3_small(num_classes=3)),
    "MobileNetV3, large": of_torchvision(lambda m: m.mobilenet_v3_large(num_classes=3)),
    "RegNet X": of_torchvision(
        lambda m: m.RegNet(m.regnet.BlockParams.from_init_params(4, 16, 8.0, 2.0, 8), num_classes=3)
    ),
    "RegNet Y": of_torchvision(
        lambda m: m.RegNet(
            m.regnet.BlockParams.from_init_params(4, 16, 8.0, 2.0, 8, se_ratio=0.25), num_classes=3
        )
    ),
    "ShuffleNet": of_torchvision(lambda m: m.shufflenet_v2_x0_5(num_classes=3)),
    "SqueezeNet": of_torchvision(lambda m: m.squeezenet1_0(num_classes=3)),
    "SqueezeNet 1.1": of_torchvision(lambda m: m.squeezenet1_1(num_classes=3)),
    "Swin": of_torchvision(lambda m: swin(m, False)),
    "Swin V2": of_torchvision(lambda m: swin(m, True)),
    "ViT": of_torchvision(lambda m: m.VisionTransformer(SIDE, 16, 2, 4, 32, 64, num_classes=3)),
    "ConvNeXt": of_torchvision(
        lambda m: m.ConvNeXt(
            [m.convnext.CNBlockConfig(8, 16, 1), m.convnext.CNBlockConfig(16, None, 2)], 0.0, num_classes=3
        )
    ),
    "MaxViT": of_torchvision(lambda m: m.MaxVit((SIDE, SIDE), 8, 2, [8, 16], [1, 1], 4, 0.0, num_classes=3)),
}

SEGMENTERS: dict[str, Make] = {
    "FCN": segmentation(lambda m: m.segmentation.fcn._fcn_resnet(dilated(m), 3, True)),
    "DeepLabV3": segmentation(lambda m: m.segmentation.deeplabv3._deeplabv3_resnet(dilated(m), 3, None)),
    "LRASPP": segmentation(
        lambda m: m.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
    ),
}


def of_smp(name: str, loss: nn.Module | None = None, **sizes: Any) -> Make:
    """A decoder of segmentation-models-pytorch over three stages of a ResNet-18, with a loss of that package or cross entropy."""

    def batch() -> Batch:
        return {"x": torch.randn(4, 3, SIDE, SIDE), "t": torch.randint(3, (4, SIDE, SIDE))}

    def make() -> Any:
        model = smp.create_model(name, "resnet18", None, classes=3, encoder_depth=3, **sizes)
        return trained(undrawn(model), batch, lambda m, b: (loss or F.cross_entropy)(m(b["x"]), b["t"]), sgd)

    return make


NARROW: dict[str, Any] = {"decoder_channels": (16, 8, 8)}
SMP: dict[str, Make] = {
    "Unet": of_smp("unet", **NARROW),
    "Unet++": of_smp("unetplusplus", **NARROW),
    "MAnet": of_smp("manet", decoder_pab_channels=8, **NARROW),
    "Linknet": of_smp("linknet"),
    "PSPNet": of_smp("pspnet", psp_out_channels=16, psp_dropout=0.0),
    **{
        f"Unet, {loss}": of_smp("unet", getattr(smp.losses, loss)("multiclass"), **NARROW)
        for loss in ("DiceLoss", "JaccardLoss", "TverskyLoss", "FocalLoss", "LovaszLoss")
    },
    "Unet, SoftCrossEntropyLoss": of_smp(
        "unet", smp.losses.SoftCrossEntropyLoss(smooth_factor=0.1), **NARROW
    ),
}


class Detector(nn.Module):
    """A pyramid of features and a head of torchvision; it returns scores and boxes of all anchors."""

    def __init__(self, head: Callable[[Any, int], nn.Module]):
        super().__init__()
        models = torchvision.models
        self.backbone = models.detection.backbone_utils._resnet_fpn_extractor(residual(models), 5)
        self.head = head(models.detection, self.backbone.out_channels)

    def forward(self, x: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return self.head(list(self.backbone(x).values()))


def detection(head: Callable[[Any, int], nn.Module], classes: int = 3) -> Make:
    """With fixed targets for each anchor, as after matching."""

    def make() -> Any:
        model = Detector(head)
        with torch.no_grad():
            shapes = {name: value.shape for name, value in model(torch.randn(2, 3, SIDE, SIDE)).items()}

        def batch() -> Batch:
            drawn = {name: torch.randn(shape) for name, shape in shapes.items()}
            return {"x": torch.randn(2, 3, SIDE, SIDE), **drawn}

        def loss(m: Any, b: Batch) -> torch.Tensor:
            made = m(b["x"])
            focal = torchvision.ops.sigmoid_focal_loss
            terms = [
                focal(value, (b[name] > 1).float(), reduction="mean")
                if name != "bbox_regression"
                else F.smooth_l1_loss(value, b[name])
                for name, value in made.items()
            ]
            return torch.stack(terms).sum()

        return trained(model, batch, loss, sgd)

    return make


def whole(name: str) -> Make:
    """A detector with its matching and its losses."""

    def make() -> Any:
        models = torchvision.models
        model = getattr(models.detection, name)(
            weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=64
        )
        # There is one size to choose from, and torchvision would read a number that it draws.
        model.transform.torch_choice = lambda sizes: sizes[0]

        def batch() -> Batch:
            corners = torch.rand(2, 1, 2) * 16
            boxes = torch.cat([corners, corners + 24], 2)
            return {"x": torch.rand(2, 3, SIDE, SIDE), "boxes": boxes, "labels": torch.randint(1, 3, (2, 1))}

        def loss(m: Any, b: Batch) -> torch.Tensor:
            targets = [{"boxes": b["boxes"][i], "labels": b["labels"][i]} for i in range(2)]
            return torch.stack(list(m(list(b["x"]), targets).values())).sum()

        return trained(model, batch, loss, sgd)

    return make


DETECTORS: dict[str, Make] = {
    "RetinaNet": detection(lambda d, n: d.retinanet.RetinaNetHead(n, 9, 3)),
    "FCOS": detection(lambda d, n: d.fcos.FCOSHead(n, 1, 3, 2)),
    "SSD": detection(lambda d, n: d.ssd.SSDHead([n] * 5, [4] * 5, 3)),
    "SSDlite": detection(lambda d, n: d.ssdlite.SSDLiteHead([n] * 5, [4] * 5, 3, nn.BatchNorm2d)),
    "whole RetinaNet": whole("retinanet_resnet50_fpn"),
    "whole FCOS": whole("fcos_resnet50_fpn"),
}

SMALL_UNET = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}

DIFFUSERS: dict[str, Make] = {
    "ControlNet": lambda: trained(
        diffusers.ControlNetModel(
            cross_attention_dim=16,
            attention_head_dim=4,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            conditioning_embedding_out_channels=(4, 8),
            **SMALL_UNET,
        ),
        lambda: {
            "x": torch.randn(2, 4, 8, 8),
            "s": torch.randint(1000, (2,)),
            "e": torch.randn(2, 5, 16),
            "c": torch.randn(2, 3, 16, 16),
        },
        lambda m, b: (m(b["x"], b["s"], b["e"], b["c"]).mid_block_res_sample - 1).square().mean(),
        sgd,
    ),
    "U-Net of videos": lambda: trained(
        undrawn(
            diffusers.UNet3DConditionModel(
                sample_size=8,
                cross_attention_dim=16,
                attention_head_dim=4,
                down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
                up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
                **SMALL_UNET,
            )
        ),
        lambda: {"x": torch.randn(1, 4, 3, 8, 8), "s": torch.randint(1000, (1,)), "e": torch.randn(1, 5, 16)},
        lambda m, b: F.mse_loss(m(b["x"], b["s"], b["e"]).sample, b["x"]),
        sgd,
    ),
}

DOWN, UP = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2


def of_autoencoder(name: str, given: Mapping[str, Any] | None = None, **sizes: Any) -> Make:
    """The mean square error of its own input."""
    return lambda: trained(
        getattr(diffusers, name)(**sizes),
        lambda: {"x": torch.randn(2, 3, 16, 16)},
        lambda m, b: F.mse_loss(m(b["x"], **(given or {})).sample, b["x"]),
        sgd,
    )


AUTOENCODERS: dict[str, Make] = {
    "asymmetric autoencoder": of_autoencoder(
        "AsymmetricAutoencoderKL",
        down_block_types=DOWN,
        down_block_out_channels=(8, 16),
        up_block_types=UP,
        up_block_out_channels=(8, 16),
        norm_num_groups=4,
    ),
    "decoder of videos": of_autoencoder(
        "AutoencoderKLTemporalDecoder",
        {"num_frames": 2},
        block_out_channels=(32, 32),
        layers_per_block=1,
        down_block_types=DOWN,
    ),
    "deep compression": of_autoencoder(
        "AutoencoderDC",
        latent_channels=4,
        attention_head_dim=2,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        encoder_layers_per_block=(1, 1),
        decoder_layers_per_block=(1, 1),
        encoder_qkv_multiscales=((), (5,)),
        decoder_qkv_multiscales=((), (5,)),
    ),
}

CASES: dict[str, Make] = {
    **{f"timm {name}": of_timm(name, sizes.get("img_size", SIDE), **sizes) for name, sizes in TIMM.items()},
    **{f"torchvision {name}": make for name, make in (CLASSIFIERS | SEGMENTERS | DETECTORS).items()},
    **{f"smp {name}": make for name, make in SMP.items()},
    **{f"diffusers {name}": make for name, make in (DIFFUSERS | AUTOENCODERS).items()},
}

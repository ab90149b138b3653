"""The rows of `models_gpu.py`: models and batches in full sizes and in tiny ones, and how they are trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import image_models as im
import other_models as o
import torch
import transformer_models as m
from torch import nn
from transformer_models import Batch, Case


@dataclass(frozen=True)
class Row:
    """A case of sizes, and how it is trained."""

    case: Callable[..., Case]
    sizes: Mapping[str, int | float]
    tiny: Mapping[str, int | float]
    precision: str = "f32"
    accumulate: int = 1
    clip: float | None = None
    drawn: bool = False
    """True if the model draws masks: contenders see other ones."""
    images: bool = False
    """True if torch convolves with channels last, and chooses its algorithms by trial."""

    def of(self, tiny: bool) -> Case:
        return self.case(**{**self.sizes, **(self.tiny if tiny else {})})


def gpt(batch: int, time: int, classes: int, **sizes: float) -> Case:
    model = partial(m.Gpt, classes, time, **sizes)  # pyright: ignore[reportArgumentType]
    return Case(model, partial(m.tokens, classes, batch, time), m.token_loss)


def over_tokens(kind: type[nn.Module], batch: int, time: int, classes: int, **sizes: int) -> Case:
    return Case(partial(kind, classes, time, **sizes), partial(m.tokens, classes, batch, time), m.token_loss)


def lstm(batch: int, time: int, classes: int, width: int) -> Case:
    return Case(partial(o.Lstm, classes, width), partial(m.tokens, classes, batch, time), m.token_loss)


def vit(batch: int, image: int, classes: int, **sizes: int) -> Case:
    def images() -> Batch:
        return {"x": torch.randn(batch, 3, image, image), "t": torch.randint(classes, (batch,))}

    return Case(partial(m.Vit, image=image, classes=classes, **sizes), images, m.class_loss)


def dit(batch: int, image: int, classes: int, **sizes: int) -> Case:
    def latents() -> Batch:
        x, noise = (torch.randn(batch, 4, image, image) for _ in range(2))
        return {
            "x": x,
            "noise": noise,
            "time": 1000 * torch.rand(batch),
            "label": torch.randint(classes, (batch,)),
        }

    return Case(partial(m.Dit, image=image, classes=classes, **sizes), latents, m.dit_loss)


def ppo(batch: int, seen: int, actions: int, width: int) -> Case:
    model = partial(o.ActorCritic, seen, actions, width)
    return Case(model, partial(o.ppo_batch, batch, seen, actions), o.ppo_loss)  # pyright: ignore[reportArgumentType]


def sac(batch: int, seen: int, actions: int, width: int) -> Case:
    model = partial(o.SoftActorCritic, seen, actions, width)
    return Case(model, partial(o.sac_batch, batch, seen, actions), None, o.sac_body)  # pyright: ignore


def nerf(rays: int, points: int, width: int) -> Case:
    def seen() -> Batch:
        return {"x": torch.rand(rays, points, 3), "t": torch.rand(rays, 3)}

    return Case(partial(o.Nerf, width), seen, o.nerf_loss)


def dlrm(batch: int, tables: int, rows: int, size: int) -> Case:
    def clicks() -> Batch:
        return {
            "x": torch.randn(batch, 13),
            "i": torch.randint(rows, (batch, tables)),
            "t": torch.rand(batch),
        }

    return Case(partial(o.Dlrm, tables, rows, size), clicks, o.click_loss)


def tabular(kind: type[nn.Module], batch: int, features: int, **sizes: int) -> Case:
    def rows() -> Batch:
        return {"x": torch.randn(batch, features), "t": torch.randn(batch)}

    return Case(partial(kind, features, **sizes), rows, o.number_loss)


def gnn(nodes: int, edges: int, features: int, width: int, classes: int) -> Case:
    def graph() -> Batch:
        x, t = torch.randn(nodes, features), torch.randint(classes, (nodes,))
        return {"x": x, "t": t, "edges": torch.randint(nodes, (2, edges))}

    return Case(partial(o.Sage, features, width, classes), graph, o.node_loss)


def pictures(
    model: Callable[..., nn.Module], batch: int, classes: int, channels: int, size: int, **sizes: Any
) -> Case:
    made = partial(model, **({} if classes == 1 else {"classes": classes}), **sizes)
    loss = im.pixel_loss if classes == 1 else m.class_loss
    return Case(made, partial(im.images, batch, channels, size, classes), loss)


def image_row(
    model: Callable[..., nn.Module], sizes: Mapping[str, Any], tiny: Mapping[str, Any], **given: Any
) -> Row:
    """A row of images in bf16; 3 channels and 1000 classes unless it says otherwise."""
    plain = {"channels": 3, "classes": 1000}
    return Row(partial(pictures, model), {**plain, **sizes}, tiny, "bf16", images=True, **given)


GPT2 = {"batch": 32, "time": 1024, "classes": 50304, "width": 768, "heads": 12, "layers": 12}
WORDS = {"batch": 2, "time": 8, "classes": 40, "width": 16, "heads": 2, "layers": 1}
LLAMA = {
    "batch": 4,
    "time": 2048,
    "classes": 32000,
    "width": 2048,
    "heads": 16,
    "kv": 8,
    "inner": 5632,
    "layers": 8,
}
T5 = {"batch": 32, "time": 256, "classes": 32128, "width": 512, "heads": 8, "inner": 2048, "layers": 6}
VIT = {"batch": 128, "image": 224, "side": 16, "width": 384, "heads": 6, "layers": 12, "classes": 1000}
DIT = {"batch": 64, "image": 32, "width": 384, "heads": 6, "layers": 12, "classes": 1000}
DLRM = {"batch": 2048, "tables": 26, "rows": 10_000, "size": 64}
TABLE = {"batch": 256, "features": 100, "width": 512, "layers": 4}
NERF = {"rays": 1024, "points": 64, "width": 256}
FEW = {"rays": 4, "points": 8, "width": 16}

ROWS: Mapping[str, Row] = {
    "gpt2:32": Row(gpt, GPT2, WORDS, "bf16"),
    "gpt2:4": Row(gpt, {**GPT2, "batch": 4}, WORDS, "bf16"),
    "gpt2:8x4": Row(gpt, {**GPT2, "batch": 8, "dropout": 0.1}, WORDS, "bf16", 4, 1.0, drawn=True),
    "llama": Row(partial(over_tokens, m.Llama), LLAMA, {**WORDS, "kv": 1, "inner": 24}, "bf16"),
    "bert": Row(partial(over_tokens, m.Bert), {**GPT2, "time": 128, "classes": 30522}, WORDS, "bf16"),
    "t5": Row(partial(over_tokens, m.T5), T5, {**WORDS, "inner": 24}, "bf16"),
    "vit": Row(vit, VIT, {"batch": 2, "image": 8, "side": 4, "width": 16, "heads": 2, "layers": 1, "classes": 5}, "bf16"),
    "dit": Row(dit, DIT, {"batch": 2, "image": 4, "width": 16, "heads": 2, "layers": 1, "classes": 5}, "bf16"),
    "lstm": Row(lstm, {"batch": 32, "time": 64, "classes": 10_000, "width": 256}, {"time": 4, "classes": 20, "width": 8}),
    "ppo": Row(ppo, {"batch": 64, "seen": 17, "actions": 6, "width": 64}, {"batch": 8, "width": 8}),
    "sac": Row(sac, {"batch": 256, "seen": 17, "actions": 6, "width": 256}, {"batch": 8, "width": 8}),
    "nerf": Row(nerf, NERF, FEW, "bf16"),
    "nerf:256": Row(nerf, {**NERF, "rays": 256}, FEW, "bf16"),
    "nerf:4096": Row(nerf, {**NERF, "rays": 4096}, FEW, "bf16"),
    "dlrm": Row(dlrm, DLRM, {"batch": 8, "tables": 3, "rows": 20, "size": 8}),
    "dlrm:200k": Row(dlrm, {**DLRM, "rows": 200_000}, {"batch": 8, "tables": 3, "rows": 20, "size": 8}),
    "tab": Row(partial(tabular, o.Tabular), TABLE, {"batch": 8, "features": 5, "width": 8, "layers": 1}, "bf16"),
    "tabm": Row(partial(tabular, o.TabM), {**TABLE, "members": 32, "layers": 3},
                {"batch": 8, "features": 5, "width": 8, "layers": 1, "members": 2}, "bf16"),
    **{
        f"nature:{batch}": image_row(
            lambda classes: im.Nature(classes), {"batch": batch, "channels": 4, "size": 84, "classes": 6}, {"batch": 2}
        )
        for batch in (32, 256)
    },
    **{
        f"resnet18:{batch}": image_row(
            partial(im.resnet, im.Basic, small=True),
            {"batch": batch, "size": 32, "classes": 10, "depths": (2, 2, 2, 2)},
            {"batch": 2, "size": 8, "depths": (1, 1), "width": 4},
        )
        for batch in (64, 512)
    },
    **{
        f"resnet50:{batch}": image_row(
            partial(im.resnet, im.Bottleneck, small=False),
            {"batch": batch, "size": 224, "depths": (3, 4, 6, 3)},
            {"batch": 2, "size": 16, "depths": (1, 1), "width": 4, "classes": 5},
        )
        for batch in (32, 128)
    },
    "mobilenet:128": image_row(im.mobile, {"batch": 128, "size": 224}, {"batch": 2, "size": 16, "rows": 2, "classes": 5}),
    "convnext:64": image_row(
        im.convnext, {"batch": 64, "size": 224}, {"batch": 2, "size": 16, "depths": (1, 1), "width": 8, "classes": 5}
    ),
    "unet:32": image_row(
        im.Unet, {"batch": 32, "size": 128, "width": 32, "levels": 4, "classes": 1},
        {"batch": 2, "size": 8, "width": 4, "levels": 2},
    ),
    "airbench:1024": image_row(im.airbench, {"batch": 1024, "size": 32, "classes": 10}, {"batch": 2, "width": 4}),
    "gnn": Row(gnn, {"nodes": 100_000, "edges": 1_000_000, "features": 64, "width": 64, "classes": 40},
               {"nodes": 10, "edges": 30, "features": 4, "width": 8}),
}  # fmt: skip

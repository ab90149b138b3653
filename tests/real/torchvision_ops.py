"""torchvision beside a torch that its wheel was not built for.

Its wheels of the package index are built for CUDA, and their compiled ops do not load beside torch for the CPU; then its Python
part does not import either, because it registers shapes for two ops that are not there. No case uses them: declared, they let
timm, vit-pytorch and transformers import the transforms that they want.
"""

import importlib.util

import torch

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def declare() -> None:
    """Declare the two ops where torchvision is installed and does not bring them."""
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision  # noqa: F401  # pyright: ignore
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", SCHEMA)

"""What users of PyTorch train, in small: a row a case, by theme."""

from __future__ import annotations

from collections.abc import Mapping

from user_models import activations, functions, images, layers, losses, networks, training, transformers
from user_models.case import Case

THEMES: Mapping[str, Mapping[str, Case]] = {
    "activations": activations.CASES,
    "functions": functions.CASES,
    "images": images.CASES,
    "layers": layers.CASES,
    "losses": losses.CASES,
    "networks": networks.CASES,
    "training": training.CASES,
    "transformers": transformers.CASES,
}

CASES: Mapping[str, Case] = {
    f"{theme}: {name}": case for theme, cases in THEMES.items() for name, case in cases.items()
}

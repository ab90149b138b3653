"""The folders of the libraries for a GPU that torch brings: a tool that has not imported torch uses the same ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path

FOLDERS = ("cu13/lib", "cublas/lib", "cudnn/lib", "nccl/lib")
"""In the package `nvidia`, as the wheels install them that torch for CUDA requires."""


def folders_of_libraries() -> list[str]:
    """The ones that are there."""
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations or ()) if spec else ()
    return [str(path) for root in roots for folder in FOLDERS if (path := Path(root, folder)).is_dir()]

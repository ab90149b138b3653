"""The devices of this machine, as torch names them."""

from __future__ import annotations

import torch

from aicf_mlir import _C
from aicf_mlir.errors import BindError
from aicf_mlir.machine import hardware


def default_device() -> str:
    """Return the device of a step that names none: "cuda" if torch and this build can use it, else "cpu"."""
    return "cuda" if torch.cuda.is_available() and _C.device_count("cuda") > 0 else "cpu"


def missing_cuda() -> str | None:
    """Return the reason why a step cannot run on a GPU here; None if it can."""
    if (why := hardware.missing_cuda()) is not None or torch.cuda.is_available():
        return why
    built = "was built without CUDA" if torch.version.cuda is None else "finds no GPU that it can use"
    return f"torch {torch.__version__} {built}"


def usable_device(device: str | torch.device | None) -> torch.device:
    """Return the requested device, with its index. Raises BindError if AICF cannot run on it here."""
    wanted = str(device) if device is not None else default_device()
    if wanted.partition(":")[0] not in ("cpu", "cuda"):
        raise BindError(f"device {wanted!r}: AICF runs on 'cpu' and 'cuda'")
    try:
        where = torch.device(wanted)
    except RuntimeError as error:
        raise BindError(f"device {wanted!r}: {error}") from None
    if where.type == "cpu":
        return torch.device("cpu")
    if (why := missing_cuda()) is not None:
        raise BindError(f"device {str(where)!r}: {why}; use device='cpu'")
    index = where.index if ":" in wanted else torch.cuda.current_device()
    if index >= torch.cuda.device_count():
        raise BindError(f"device {wanted!r}: this machine has {torch.cuda.device_count()} GPU(s)")
    return torch.device("cuda", index)

"""What to write instead of an op that is not supported: one row an op, whatever its overload.

Each row has a case in `tests/py/advised.py`: the op is still refused, and what is advised trains as the op does in torch.
"""

from __future__ import annotations

WINDOWS = "for padding, F.pad first"

ADVICE: dict[str, str] = {
    "aten.conv1d": f'torch.einsum("nclk,ock->nol", x.unfold(2, kernel, stride), weight) + bias[:, None]; {WINDOWS}',
    "aten.conv2d": (
        'torch.einsum("nchwij,ocij->nohw", x.unfold(2, kernel, stride).unfold(3, kernel, stride), weight)'
        f" + bias[:, None, None]; {WINDOWS}"
    ),
    "aten.max_pool1d": f"x.unfold(2, kernel, stride).max(-1).values; {WINDOWS}, with value=-math.inf",
    "aten.max_pool2d": (
        "x.unfold(2, kernel, stride).unfold(3, kernel, stride).flatten(-2).max(-1).values;"
        f" {WINDOWS}, with value=-math.inf"
    ),
    "aten.avg_pool1d": f"x.unfold(2, kernel, stride).mean(-1); {WINDOWS}",
    "aten.avg_pool2d": f"x.unfold(2, kernel, stride).unfold(3, kernel, stride).mean((-2, -1)); {WINDOWS}",
    "aten.adaptive_avg_pool1d": (
        "x.unflatten(2, (size, -1)).mean(-1), where the length is a multiple of the output's"
    ),
    "aten.adaptive_avg_pool2d": (
        "x.unflatten(3, (width, -1)).mean(-1).unflatten(2, (height, -1)).mean(-2), where both are divisors of the input's"
    ),
    "aten.adaptive_max_pool1d": (
        "x.unflatten(2, (size, -1)).max(-1).values, where the length is a multiple of the output's"
    ),
    "aten.adaptive_max_pool2d": (
        "x.unflatten(3, (width, -1)).max(-1).values.unflatten(2, (height, -1)).max(-2).values, where both are divisors"
        " of the input's"
    ),
    "aten.addbmm": "M + (a @ b).sum(0)",
    "aten.bucketize": "(x[..., None] > boundaries).sum(-1)",
    "aten.cumprod": "x.log().cumsum(dim).exp(), of positive numbers",
    "aten.dist": "torch.linalg.vector_norm(x - y)",
    "aten.erfc": "1 - torch.erf(x), with fewer digits where it is nearly 0",
    "aten.fmax": "torch.where(x.isnan() | (x < y), y, x)",
    "aten.fmin": "torch.where(x.isnan() | (x > y), y, x)",
    "aten.hypot": "(x * x + y * y).sqrt()",
    "aten.ldexp": "x * 2.0**exponent",
    "aten.median": "x.flatten().kthvalue((x.numel() + 1) // 2).values",
    "aten.pdist": "torch.cdist(x, x)[torch.triu_indices(n, n, 1).unbind()]",
    "aten.randperm": "torch.rand(n).argsort()",
    "aten.searchsorted": "(x[..., None] > boundaries).sum(-1)",
    "aten.signbit": "torch.copysign(torch.ones_like(x), x) < 0",
}
"""By the name of the op."""


def advice_for(op: str) -> str:
    """What to write instead of an overload such as `aten.conv2d.default`; empty where nothing is known."""
    return ADVICE.get(op.rpartition(".")[0], "")

"""What a function does to the elements under a mask (`selected.py`), by its name: to each, row by row, or over the rows."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map_only  # pyright: ignore[reportUnknownVariableType]

from aicf_mlir.frontend.selected import Selected, along, tensors_in
from aicf_mlir.frontend.selected_forms import Forms, NotByRow, dimensions, has_rows
from aicf_mlir.frontend.values import is_a

Tensor = torch.Tensor
_linalg: Any = torch.linalg


PYTHONS = {
    **dict.fromkeys(("truediv", "rtruediv", "itruediv", "true_divide"), "div"),
    "floordiv": "floor_divide",
    "mod": "remainder",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
    "radd": "add",
    "iadd": "add",
    "rmul": "mul",
    "imul": "mul",
    "isub": "sub",
    "rpow": "pow",
    "rsub": "sub",
    "subtract": "sub",
    "multiply": "mul",
}
"""Names of operators, by torch's names of what they do."""

BY_ROW = frozenset(
    (
        *(
            "clone",
            "detach",
            "contiguous",
            "to",
            "type",
            "type_as",
            "float",
            "double",
            "half",
            "bfloat16",
            "long",
        ),
        *("int", "bool", "floor_divide", "hardswish", "logsigmoid", "log_sigmoid", "softsign", "tanhshrink"),
        *("dropout", "linear", "layer_norm", "rms_norm", "embedding", "one_hot", "alpha_dropout"),
        *("prelu", "relu6", "requires_grad_"),
    )
)
"""Functions, by name, that act on each row of their first operand alone."""

DIMENSION: Mapping[str, tuple[int, int | None]] = {
    **dict.fromkeys(
        ("softmax", "log_softmax", "cumsum", "cumprod", "logsumexp", "argmax", "argmin"), (1, None)
    ),
    **dict.fromkeys(("sort", "argsort"), (1, -1)),
    **dict.fromkeys(("gather", "select", "narrow", "squeeze", "unsqueeze"), (1, None)),
    **dict.fromkeys(("take_along_dim", "roll"), (2, None)),
    **dict.fromkeys(("normalize", "cosine_similarity"), (2, 1)),
    "topk": (2, -1),
    "norm": (2, None),
    **dict.fromkeys(("chunk", "split", "tensor_split"), (2, 0)),
    **dict.fromkeys(("unbind",), (1, 0)),
    "flip": (1, None),
    "glu": (1, -1),
    **dict.fromkeys(
        ("sum", "mean", "prod", "amax", "amin", "max", "min", "any", "all", "std", "var"), (1, None)
    ),
}
"""Functions, by name, along dimensions: the place of that argument, and what it is by default."""

FACTS = frozenset(
    (
        "dtype",
        "device",
        "ndim",
        "dim",
        "requires_grad",
        "is_floating_point",
        "is_complex",
        "layout",
        "is_cuda",
    )
)
"""What a selection has in common with all rows."""

VALUES = frozenset(
    (
        "int",
        "float",
        "bool",
        "complex",
        "index",
        "iter",
        "contains",
        "format",
        "array",
        "reversed",
        "repr",
        "str",
    )
)
"""What Python asks of a number or a container, between underscores."""

IN_PLACE = frozenset(("iadd", "isub", "imul", "itruediv", "ipow", "iand", "ior", "ixor"))

FILLS = frozenset(("zero", "fill", "copy"))
"""Functions, by name, that write to each element, whatever it was."""

LEAST = {"max": -1, "amax": -1, "min": 1, "amin": 1}


class Rules(Forms):
    """The rules for one call of a function on selections."""

    def result(self) -> Any:
        """Return what the function gives. Raises NotByRow."""
        plain = self.name.strip("_")
        is_operator = self.name.startswith("__")
        if (is_operator and plain in VALUES) or self.kwargs.get("out") is not None:
            raise NotByRow("no value of theirs in Python, and no out=")
        operands = list(tensors_in([self.args, dict(self.kwargs)]))
        if any(each.is_led for each in operands if type(each) is Selected):
            return self.without_lead()
        own: Callable[[], Any] | None = getattr(self, f"of_{plain}", None)
        if own is not None:
            return own()
        name = PYTHONS.get(plain, plain)
        first = next(each for each in operands if type(each) is Selected)
        if name in FACTS:
            return self.func(*self.on_rows(self.args))
        if has_reduction(self.func):
            return self.loss(first)
        if (self.name.endswith("_") and not is_operator) or plain in IN_PLACE:
            return self.changed(name)
        if is_pointwise(name) and (name not in LEAST or len(operands) > 1):
            self.expect_together(first)
            return self.by_row(first)
        if not self.args or type(self.args[0]) is not Selected:
            raise NotByRow("selected rows as the first operand")
        if name in DIMENSION:
            return self.along_dimension(first, name)
        if name in BY_ROW:
            self.expect_together(first, apart=1)
            return self.by_row(first)
        raise NotByRow("a function of each row alone")

    def by_row(self, first: Selected) -> Any:
        """Call the function on all rows, and select of each tensor that it gives."""
        result = self.func(*self.on_rows(self.args), **self.on_rows(dict(self.kwargs)))
        return tree_map_only(Tensor, first.like, result)

    def on_rows(self, value: Any) -> Any:
        """Replace selections by all their rows."""
        return tree_map_only(Selected, lambda each: each.rows, value)

    def changed(self, name: str) -> Selected:
        """Change the rows in place: they are a copy of their own, and views of them are views of these rows."""
        x = self.args[0]
        if type(x) is not Selected or not (name in FILLS or is_pointwise(name)):
            raise NotByRow("a function that changes each of them alone")
        self.expect_together(x)
        self.func(*self.on_rows(self.args), **self.on_rows(dict(self.kwargs)))
        return x

    def along_dimension(self, first: Selected, name: str) -> Any:
        """Call a function along dimensions that are none of rows, or sum over rows."""
        place, default = DIMENSION[name]
        given = self.kwargs.get("dim", self.kwargs.get("dims", self.kwargs.get("axis")))
        if given is None:
            given = self.args[place] if len(self.args) > place else default
        dims = dimensions(given, first.rows.dim() + (name == "unsqueeze"))
        if dims is None or 0 in dims:
            if name not in ("sum", "mean", "max", "min", "amax", "amin", "any", "all", "std", "var", "norm"):
                raise NotByRow("a dimension that is not that of the selected rows")
            return self.over_rows(first, name, dims)
        self.expect_together(first)
        return self.by_row(first)

    def over_rows(self, first: Selected, name: str, dims: tuple[int, ...] | None) -> Tensor:
        """Reduce over selected rows, and other dimensions."""
        x, mask = first.rows, along(first.mask, first.rows)
        keep = bool(
            self.kwargs.get(
                "keepdim",
                self.args[2] if len(self.args) > 2 and name not in ("norm", "std", "var") else False,
            )
        )
        unread = set(self.kwargs) - {"dim", "axis", "keepdim", "dtype", "correction", "unbiased", "p"}
        if unread or (name in ("std", "var", "norm") and len(self.args) > 2):
            raise NotByRow(f"no argument but dim and keepdim of {name}")
        over = tuple(range(x.dim())) if dims is None else dims
        if name in ("any", "all"):
            hit = (x != 0) & mask if name == "any" else (x == 0) & mask
            found = hit.any() if dims is None else hit.to(torch.float32).amax(over, keepdim=keep) > 0
            return found if name == "any" else ~found
        if name in LEAST:
            if dims is not None and name in ("max", "min"):
                raise NotByRow("values alone, as amax and amin give")
            if x.dtype.is_floating_point:
                other = LEAST[name] * math.inf
            else:
                info = torch.iinfo(x.dtype)
                other = info.min if LEAST[name] < 0 else info.max
            torch._assert_async(first.mask.any(), "no element is under the mask")  # pyright: ignore
            return getattr(torch.where(mask, x, other), "amax" if LEAST[name] < 0 else "amin")(
                over, keepdim=keep
            )
        if name == "norm":
            p = self.kwargs.get("p", self.args[1] if len(self.args) > 1 else 2)
            if p not in (2, 2.0, 1, 1.0, "fro"):
                raise NotByRow("the norm of order 1 or 2")
            return _linalg.vector_norm(torch.where(mask, x, 0), 2 if p == "fro" else p, over, keepdim=keep)
        dtype = self.kwargs.get("dtype")
        if name == "sum":
            return torch.where(mask, x, 0).sum(over, keepdim=keep, dtype=dtype)
        if not x.dtype.is_floating_point and dtype is None:
            raise NotByRow("floating-point numbers")
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        number = first.mask.sum().to(wide) * math.prod(x.shape[d] for d in over if d)
        if name == "mean":
            return (torch.where(mask, x, 0).sum(over, keepdim=keep, dtype=wide) / number).to(dtype or x.dtype)
        correction = self.kwargs.get("correction", int(self.kwargs.get("unbiased", True)))
        if len(self.args) > 1 and is_a(self.args[1], bool):
            correction, over = int(self.args[1]), tuple(range(x.dim()))
        center = torch.where(mask, x, 0).sum(over, keepdim=True, dtype=wide) / number
        away, freedom = torch.where(mask, x.to(wide) - center, 0), (number - correction).clamp(min=0)
        if name == "var":
            return ((away * away).sum(over, keepdim=keep) / freedom).to(x.dtype)
        spread = _linalg.vector_norm(away, dim=over, keepdim=keep)  # its gradient at 0 is 0, as that of std
        return (spread / freedom.sqrt()).to(x.dtype)

    def loss(self, first: Selected) -> Any:
        """Call a loss row by row, then reduce as it was asked to."""
        bound = inspect.signature(self.func).bind(*self.args, **self.kwargs)
        bound.apply_defaults()
        named = bound.arguments
        if named.get("size_average") is not None or named.get("reduce") is not None:
            raise NotByRow("reduction= in place of size_average and reduce")
        of_classes = "ignore_index" in named
        given = [
            each for n, v in named.items() if not (of_classes and n == "weight") for each in tensors_in(v)
        ]
        if any(each.key != first.key if type(each) is Selected else has_rows(each, first) for each in given):
            raise NotByRow("operands under one mask (make it once, and use it for each)")
        target: Any = named.get("target")
        if of_classes and type(target) is not Selected:
            raise NotByRow("a target that is selected too")
        reduction, rows = named["reduction"], {n: self.on_rows(v) for n, v in named.items()}
        if of_classes and not target.rows.dtype.is_floating_point and reduction != "none":
            mask = along(first.mask, target.rows)
            return self.func(**{**rows, "target": torch.where(mask, target.rows, named["ignore_index"])})
        each = first.like(self.func(**{**rows, "reduction": "none"}))
        if reduction == "none":
            return each
        whole = Rules(self.masks, Tensor.sum, "sum", (each,), {}).result()
        if reduction == "sum":
            return whole
        if reduction not in ("mean", "batchmean"):
            raise NotByRow("the reduction mean, sum or none")
        if reduction == "batchmean":
            return whole / first.mask.sum()
        return Rules(self.masks, Tensor.mean, "mean", (each,), {}).result()


@cache
def is_pointwise(name: str) -> bool:
    """True if torch says so of the op with this name."""
    packet: Any = getattr(torch.ops.aten, name, None)
    overloads: list[str] = [] if packet is None else packet.overloads()
    return any(torch.Tag.pointwise in getattr(packet, each).tags for each in overloads)


@cache
def has_reduction(func: Callable[..., Any]) -> bool:
    """True if it is a loss of torch.nn.functional."""
    return (
        type(func) is FunctionType
        and getattr(F, func.__name__, None) is func
        and "reduction" in inspect.signature(func).parameters
    )

"""Element types in IR, by the name that the runtime has for them too."""

from __future__ import annotations

from xdsl.dialects import builtin
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.element_types import DTYPES

ELEMENT_TYPES: dict[str, Attribute] = {row.name: getattr(builtin, row.name) for row in DTYPES}

_NAMES: dict[Attribute, str] = {type_: name for name, type_ in ELEMENT_TYPES.items()}


def element_name(element: Attribute) -> str:
    """The runtime's name of an element type, e.g. "bf16"."""
    if (name := _NAMES.get(element)) is None:
        raise VerifyException(f"element type must be one of {', '.join(ELEMENT_TYPES)}, got {element}")
    return name

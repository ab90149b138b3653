"""Op classes that are made of the rows of a table, and their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from xdsl.dialects.builtin import FloatAttr, StringAttr, f64
from xdsl.ir import Attribute, Operation
from xdsl.irdl import irdl_op_definition, prop_def

from aicf_mlir.dialects.nn.common import NNOp
from aicf_mlir.dialects.nn.rows.row import Parameter
from aicf_mlir.ir.properties import float_attr


def class_name(name: str) -> str:
    """The class of the op `nn.<name>`: `LeakyReluOp`."""
    return "".join(word.capitalize() for word in name.split("_")) + "Op"


def make_class(
    name: str, base: type[NNOp], doc: str, parameters: Mapping[str, Parameter], **namespace: Any
) -> type[Any]:
    """The op `nn.<name>`, a subclass of `base`, with a property for each parameter."""
    made: dict[str, Any] = {"name": f"nn.{name}", "__doc__": doc, "__module__": base.__module__, **namespace}
    for parameter, default in parameters.items():
        constraint = StringAttr if isinstance(default, str) else FloatAttr.constr(f64)
        made[parameter] = prop_def(constraint, default_value=attribute_of(default))
    made_class: Any = type(class_name(name), (base,), made)
    return irdl_op_definition(made_class)


def attribute_of(value: Parameter) -> Attribute:
    """A parameter as a property."""
    return StringAttr(value) if isinstance(value, str) else float_attr(value)


def attributes_of(parameters: Mapping[str, Parameter]) -> dict[str, Attribute]:
    """Parameters as properties."""
    return {name: attribute_of(value) for name, value in parameters.items()}


def parameters_of(op: Operation, names: Iterable[str]) -> dict[str, Any]:
    """The reverse."""
    found: dict[str, Any] = {}
    for name in names:
        attribute = op.properties[name]
        if isinstance(attribute, StringAttr):
            found[name] = attribute.data
        else:
            assert isinstance(attribute, FloatAttr)
            found[name] = attribute.value.data
    return found

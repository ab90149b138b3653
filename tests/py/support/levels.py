"""Run a step's text at any level by the reference interpreters, with values by role and name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr

from aicf_mlir.interpreters import run_function, run_plan
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir.diagnostics import Source
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.roles import ARGUMENT_ROLES, KEPT_ROLES, RETURNED_ROLES
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.runtime.program import load_program
from aicf_mlir.text.parsing import make_context, parse_source

Values = Mapping[str, torch.Tensor | float]
"""By name: inputs, parameters, buffers and host scalars. Optimizer state that is missing starts at zero."""


def parse(text: str) -> ModuleOp:
    """The module of a text, verified; it must print as the same text again."""
    module = parse_source(make_context(), Source("step", text)).module
    module.verify()
    assert to_text(module) + "\n" == text, "the text does not round-trip"
    return module


def run_text(text: str, values: Values) -> dict[str, torch.Tensor]:
    """The loss and every updated value by name, from the text of any stage."""
    module = parse(text)
    if any(isinstance(op, func.FuncOp) for op in module.ops):
        return _run_function(module, values)
    return _run_plan(module, values)


def _run_function(module: ModuleOp, values: Values) -> dict[str, torch.Tensor]:
    function = next(op for op in module.ops if isinstance(op, func.FuncOp))
    arguments = [
        _array(_name(attributes), element_name(element_type(argument)), shape_of(argument), values)
        for argument, attributes in zip(function.args, function.arg_attrs or (), strict=True)
    ]
    results = run_function(module, arguments)
    names = [_name(attributes) for attributes in function.res_attrs or ()]
    return {name: _tensor(result) for name, result in zip(names, results, strict=True)}


def _run_plan(module: ModuleOp, values: Values) -> dict[str, torch.Tensor]:
    program = load_program(module)
    arenas = {role: bytearray(size) for role, size in program.arenas.items()}

    def view(slot: Any) -> Any:
        dtype = np.dtype(NUMPY_TYPES[slot.dtype])
        flat = np.frombuffer(arenas[slot.arena], dtype, int(np.prod(slot.shape)), slot.offset)
        return flat.reshape(slot.shape)

    for slot in program.slots.values():
        if slot.role == "const":
            view(slot)[...] = slot.value
        elif slot.role in ARGUMENT_ROLES and slot.role != "status":
            view(slot)[...] = _array(slot.name, slot.dtype, slot.shape, values)
    run_plan(module, arenas)
    return {
        slot.name: _tensor(view(slot).copy())
        for slot in program.slots.values()
        if slot.role in (*KEPT_ROLES, *RETURNED_ROLES)
    }


def _array(name: str, dtype: str, shape: tuple[int, ...], values: Values) -> Any:
    numpy_type = np.dtype(NUMPY_TYPES[dtype])
    value = values.get(name, float("nan") if name.startswith(("bc1_pin", "bc2_pin")) else 0.0)
    if isinstance(value, torch.Tensor):
        assert tuple(value.shape) == shape, f"{name}: {tuple(value.shape)}, the text has {shape}"
        return (
            value.detach()
            .cpu()
            .to(torch.float64 if value.is_floating_point() else value.dtype)
            .numpy()
            .astype(numpy_type)
        )
    return np.full(shape, value, numpy_type)


def _tensor(array: Any) -> torch.Tensor:
    array = np.asarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _name(attributes: Any) -> str:
    assert isinstance(attributes, DictionaryAttr)
    name = attributes.data["aicf.name"]
    assert isinstance(name, StringAttr)
    return name.data

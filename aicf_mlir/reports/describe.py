"""The standard description of launches: the tensors that each reads and writes, its method, and the user's line.

`describe` takes a module of launches, a plan or one of the stages `lowered`, `fused` and `kernel`; `to_table` and `to_json` print
what it found. The JSON is one object, stable from version to version; keys are added, never changed while `version` stays:

    {"version": 1, "launches": [LAUNCH, …]}                in the order in which they run
                "precision": text   "bf16": the requested precision, only if one was requested
                "plan": text    the origin of the plan, only if it is not the step's own
    LAUNCH      launch          "@k3" in a plan, "%relu" (the first result) in a function: its name in the text
                op              "gemm_epilogue": its name in the kernel dialect
                kernel_id       "gemm_epilogue_cpu_blas"; null before select-kernels
                doc             its result, in a line
                numerics        the order of sums and the roundings; empty if a number is computed by itself
                operands        [{"name": "a", "tensors": [TENSOR, …]}, …]; absent ones too,
                                without tensors: all of the schema, in its order
                results         the same
                attributes      {name: value}: all of the schema, defaults filled in; null is an absent one without default
                workspace       bytes of scratch memory
                branch          of a captured graph: launches of one branch run one after another; 0 for all without branches
                source          [{"file", "line", "layer"}, …]: its ops' lines, the main one first; [] where not known
    TENSOR      name            "@x" or "%x"
                dtype, shape    "f32", [4, 8]
                layout          "dense": row-major without gaps; or as in the text: "strided<[96, 1], offset: 32>"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from typing import TypeVar

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.printer import Printer

from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.errors import VerifyError
from aicf_mlir.ir.attributes import AttributeValue
from aicf_mlir.ir.layouts import shares_block
from aicf_mlir.ir.locations import SourceLocation, origins
from aicf_mlir.ir.registry import Operand, Schema, schemas
from aicf_mlir.ir.tensor_op import tensor_type

VERSION = 1
"""The version of the JSON."""

DENSE = "dense"

DIALECTS = frozenset({"builtin", "func", "kernel", "plan", "scalar", "arith", "math"})
"""The dialects of the stages whose work is launches."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class LaunchTensor:
    """A tensor that a launch reads or writes, by its name in the text."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: str = DENSE

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)} {self.layout}"


@dataclass(frozen=True)
class NamedTensors:
    """An operand or a result of the schema, with its tensors."""

    name: str
    tensors: tuple[LaunchTensor, ...]


@dataclass(frozen=True)
class UserLine:
    """A line of the user's, and the layer of the model that ran there."""

    file: str
    line: int
    layer: str


@dataclass(frozen=True)
class Description:
    """The description of a launch; the fields are those of the JSON."""

    launch: str
    op: str
    kernel_id: str | None
    doc: str
    numerics: str
    operands: tuple[NamedTensors, ...]
    results: tuple[NamedTensors, ...]
    attributes: Mapping[str, AttributeValue | None]
    workspace: int
    branch: int
    source: tuple[UserLine, ...]


def describe(module: ModuleOp | ProgramOp) -> tuple[Description, ...]:
    """Every launch of `module`, in order. VerifyError where ops are not lowered to launches yet."""
    for op in module.walk():
        if op.dialect_name() not in DIALECTS:
            message = (
                f"'{op.name}' is no launch: launches are described after lowering; run the stage 'lowered', "
                "or a later one such as 'kernel' or 'plan'"
            )
            op.emit_error(message, VerifyError(message))
    descriptions: list[Description] = []
    for op in module.walk():
        match op:
            case ProgramOp():
                descriptions += _of_program(op)
            case func.FuncOp():
                descriptions += _of_function(op)
            case _:
                pass
    return tuple(descriptions)


def to_json(launches: Sequence[Description], told: Mapping[str, str | None] | None = None) -> str:
    """The description as JSON, two columns of indent a level; `told` are the facts about the whole."""
    known = {key: text for key, text in (told or {}).items() if text is not None}
    document = {"version": VERSION, **known, "launches": [asdict(launch) for launch in launches]}
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)


def to_table(launches: Sequence[Description], told: Mapping[str, str | None] | None = None) -> str:
    """The description to be read: a paragraph for each launch, a line for each tensor; `told` as in `to_json`."""
    known = [
        text if key == "plan" else f"{key}: {text}" for key, text in (told or {}).items() if text is not None
    ]
    return "\n\n".join([*known, *map(_paragraph, launches)])


def _of_program(program: ProgramOp) -> list[Description]:
    slots = program.slots

    def tensor(symbol: str) -> LaunchTensor:
        layout = slots[symbol].layout
        shown = DENSE if layout is None else str(layout.to_attribute())
        return LaunchTensor(f"@{symbol}", *slots[symbol].spec, shown)

    descriptions: list[Description] = []
    for op in program.launches:
        schema = schemas()[op.op.data]
        inputs = _segments(schema.inputs, op.ins, tensor)
        outputs = _segments(schema.outputs, op.outs, tensor)
        workspace = 0 if op.scratch is None else slots[op.scratch].nbytes
        name, kernel, branch = f"@{op.symbol}", op.kernel_id.data, op.branch_number
        descriptions.append(
            _described(op, name, schema, kernel, inputs, outputs, op.values, workspace, branch)
        )
    return descriptions


def _of_function(function: func.FuncOp) -> list[Description]:
    printer = Printer(StringIO())  # gives values the names that they have in the text
    for argument in function.args:
        printer.print_ssa_value(argument)

    def tensor(value: SSAValue) -> LaunchTensor:
        layout = str(tensor_type(value).encoding) if shares_block(value.type) else DENSE
        return LaunchTensor(f"%{printer.print_ssa_value(value)}", *tensor_spec(value), layout)

    descriptions: list[Description] = []
    for op in function.walk():
        names = [f"%{printer.print_ssa_value(result)}" for result in op.results]
        if isinstance(op, KernelOp):
            schema = op.schema_of()
            inputs = _segments(schema.inputs, op.ins, tensor)
            outputs = _segments(schema.outputs, op.outs, tensor)
            kernel = None if op.kernel_id is None else op.kernel_id.data
            workspace = 0 if op.workspace is None else op.workspace.value.data
            descriptions.append(
                _described(op, names[0], schema, kernel, inputs, outputs, op.attrs, workspace)
            )
    return descriptions


def _segments(
    rows: Sequence[Operand], items: Mapping[str, Sequence[Item]], tensor: Callable[[Item], LaunchTensor]
) -> tuple[NamedTensors, ...]:
    return tuple(
        NamedTensors(row.name, tuple(tensor(item) for item in items.get(row.name, ()))) for row in rows
    )


def _described(
    op: Operation,
    name: str,
    schema: Schema,
    kernel_id: str | None,
    operands: tuple[NamedTensors, ...],
    results: tuple[NamedTensors, ...],
    given: Mapping[str, AttributeValue],
    workspace: int,
    branch: int = 0,
) -> Description:
    attributes = {row.name: given.get(row.name, row.default) for row in schema.attrs}
    source = tuple(_source(location) for location in origins(op))
    return Description(
        name,
        schema.name,
        kernel_id,
        schema.doc,
        schema.numerics,
        operands,
        results,
        attributes,
        workspace,
        branch,
        source,
    )


def _source(location: SourceLocation) -> UserLine:
    return UserLine(location.file, location.line, location.layer)


def _paragraph(launch: Description) -> str:
    chosen = "no kernel yet" if launch.kernel_id is None else f"kernel {launch.kernel_id}"
    width = max(len(segment.name) for segment in (*launch.operands, *launch.results))
    lines = [f"{launch.launch} = {launch.op}, {chosen}", f"  {launch.doc}"]
    if launch.numerics:
        lines.append(f"  {launch.numerics}")
    for arrow, segments in (("<-", launch.operands), ("->", launch.results)):
        for segment in segments:
            lines += [f"  {arrow} {segment.name:{width}} {tensor}" for tensor in segment.tensors]
    known = {name: value for name, value in launch.attributes.items() if value is not None}
    lines += [f"     {name} = {json.dumps(value)}" for name, value in known.items()]
    if launch.workspace:
        lines.append(f"     {launch.workspace} bytes of workspace")
    if launch.branch:
        lines.append(f"     on branch {launch.branch}")
    lines += [f"  at {SourceLocation(each.file, each.line, each.layer)}" for each in launch.source]
    return "\n".join(lines)

"""The signature of a step: the purpose of each argument and result of the function, and the user's name for it.

    func.func @step(%w: tensor<4x8xf32> {aicf.role = "param", aicf.name = "0.weight"}, ...)
        -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"}, ...)

Role and name together identify an argument: a parameter, a batch entry and a host scalar may all be called "lr". An update then
names with aicf.of the role that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import func
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    ModuleOp,
    StringAttr,
    TensorType,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.expect import FLOAT_NAMES, is_float_type
from aicf_mlir.ir.renamed import if_renamed
from aicf_mlir.ir.roles import ARGUMENT_ROLES, KEPT_ROLES, STATUS

ROLE = "aicf.role"
NAME = "aicf.name"
OF = "aicf.of"
LITERAL = "aicf.literal"
"""Marks a buffer that holds numbers of the model's own text, not of a tensor that the user has."""
OF_RANK = "aicf.of_rank"
"""The rank of a group whose new value of a buffer all of them take."""
OF_EACH_RANK = "aicf.of_each_rank"
"""Marks a parameter that each rank of a group has for itself."""

RESULT_ROLES = ("loss", "grad", "update", "output", STATUS)
"""The value to minimise; of the parameter named; the new value of the argument named; anything else.

The result "status" is the new value of the argument "status". If its code, the first number, is not 0, a check has failed and the
step counts as not done: no result labelled "update" takes the place of its argument. The status itself does, so that no step
updates anything until the host has seen it and written zeros.
"""

STATUS_TYPE: TensorType[Attribute] = TensorType(i64, (3,))
"""The code of the check that failed, or 0; the position of the element that made it fail; the value of this element."""


@dataclass(frozen=True)
class Label:
    """Role and name of one argument or result, empty if the text has none; `rest` are its other entries."""

    role: str = ""
    name: str = ""
    rest: tuple[tuple[str, Attribute], ...] = ()
    target_role: str = ""
    """The role of the argument that an update replaces; empty if the name alone identifies it."""

    @property
    def is_literal(self) -> bool:
        """True if the argument is a tensor of literals."""
        return any(key == LITERAL for key, _ in self.rest)

    @staticmethod
    def literal(name: str) -> Label:
        """The label of a tensor of literals."""
        return Label("buffer", name, ((LITERAL, UnitAttr()),))

    @staticmethod
    def of(attributes: DictionaryAttr) -> Label:
        """The label in an attribute dictionary."""
        written = dict(attributes.data)
        role, name, of = (_text(written.pop(key, None)) for key in (ROLE, NAME, OF))
        return Label(role, name, tuple(written.items()), of)

    def to_attribute(self) -> DictionaryAttr:
        """The dictionary that `of` reads."""
        texts = ((ROLE, self.role), (NAME, self.name), (OF, self.target_role))
        named = {key: StringAttr(value) for key, value in texts if value}
        return DictionaryAttr({**named, **dict(self.rest)})


STATUS_LABEL = Label(STATUS, "failed")
"""The label of a status that AICF adds: a launch runs `predicate not @failed`."""


def _text(attribute: Attribute | None) -> str:
    if attribute is not None and not isinstance(attribute, StringAttr):
        raise VerifyException(f"expected {ROLE}, {NAME} and {OF} to be strings, got {attribute}")
    return "" if attribute is None else attribute.data


def argument_labels(function: func.FuncOp) -> list[Label]:
    """One label per argument."""
    return _labels(function.arg_attrs, len(function.function_type.inputs))


def result_labels(function: func.FuncOp) -> list[Label]:
    """One label per result."""
    return _labels(function.res_attrs, len(function.function_type.outputs))


def _labels(attributes: ArrayAttr[DictionaryAttr] | None, count: int) -> list[Label]:
    if attributes is None:
        return [Label()] * count
    if len(attributes) != count:
        raise VerifyException(f"expected {count} dictionaries of labels, got {len(attributes)}")
    return [Label.of(entry) for entry in attributes]


class ArgumentIndex:
    """The positions of labelled arguments by name."""

    def __init__(self, labels: Sequence[Label]):
        self._by_name: dict[str, list[tuple[str, int]]] = {}
        for index, label in enumerate(labels):
            if label.role:
                self._by_name.setdefault(label.name, []).append((label.role, index))

    def updated_by(self, label: Label) -> list[int]:
        """The positions of the arguments that an update can mean: one in a function that verifies."""
        named = self._by_name.get(label.name, [])
        return [index for role, index in named if label.target_role in ("", role)]


def literal_names(functions: Iterable[Operation]) -> set[str]:
    """The names of the buffers that are literals, in the functions among some ops."""
    labels = (label for op in functions if isinstance(op, func.FuncOp) for label in argument_labels(op))
    return {label.name for label in labels if label.is_literal}


Key = tuple[str, str]
"""Role and name: those of an argument; for a result "output", "grad", or those of the argument that it updates."""


def argument_keys(function: func.FuncOp) -> list[Key]:
    """One key per argument, all different; one without a label is an input called as in the text."""
    labels = argument_labels(function)
    taken = {(label.role, label.name) for label in labels}
    keys: list[Key] = []
    for argument, label in zip(function.args, labels, strict=True):
        key = label.role or "input", label.name or argument.name_hint or f"arg{argument.index}"
        base, number = key[1], argument.index
        while not label.name and key in taken:
            key, number = (key[0], f"{base}_{number}"), number + 1
        taken.add(key)
        keys.append(key)
    return keys


def result_keys(function: func.FuncOp) -> list[Key]:
    """One key per result, all different in a function that verifies."""
    arguments, index_of = argument_keys(function), ArgumentIndex(argument_labels(function))
    keys: list[Key] = []
    for index, label in enumerate(result_labels(function)):
        if label.role == "update":
            keys.append(arguments[index_of.updated_by(label)[0]])
        elif label.role in ("grad", STATUS):
            keys.append((label.role, label.name))
        else:
            keys.append(("output", label.name or label.role or f"result{index}"))
    return keys


def return_op(function: func.FuncOp) -> func.ReturnOp:
    """The terminator of a function of one block; refuses declarations and several blocks."""
    last = function.body.block.last_op if len(function.body.blocks) == 1 else None
    if not isinstance(last, func.ReturnOp):
        message = f"expected @{function.sym_name.data} to be one block that ends in func.return"
        function.emit_error(message, VerifyException(message))
    return last


def steps(module: ModuleOp) -> list[func.FuncOp]:
    """The functions of `module` that have a body and are there for others: a private one belongs to one of these."""
    functions = [op for op in module.ops if isinstance(op, func.FuncOp)]
    return [f for f in functions if not f.is_declaration and f.sym_visibility != StringAttr("private")]


def private_function(module: ModuleOp, symbol: str) -> func.FuncOp | None:
    """The private function @`symbol`, which belongs to a step in the same module."""
    functions = [op for op in module.ops if isinstance(op, func.FuncOp) and not op.is_declaration]
    private = StringAttr("private")
    return next((f for f in functions if f.sym_name.data == symbol and f.sym_visibility == private), None)


def append_argument(function: func.FuncOp, type: Attribute, label: Label) -> BlockArgument:
    """A new last argument of `function`."""
    block = function.body.block
    argument = block.insert_arg(type, len(block.args))
    label_arguments(function, [label])
    return argument


def label_arguments(function: func.FuncOp, added: Sequence[Label]) -> None:
    """Write the arguments that were added at the end of the block into the signature, under these labels."""
    block = function.body.block
    old = len(block.args) - len(added)
    labels = (DictionaryAttr({}),) * old if function.arg_attrs is None else function.arg_attrs.data
    function.function_type = FunctionType.from_lists(block.arg_types, function.function_type.outputs.data)
    function.arg_attrs = ArrayAttr([*labels, *(label.to_attribute() for label in added)])


def set_results(function: func.FuncOp, results: Sequence[tuple[SSAValue, Label]]) -> None:
    """Have the function return these values, under these labels, instead of the results of `function`.

    An update whose name belongs to one argument only is written without the role of that argument.
    """
    arguments = ArgumentIndex(argument_labels(function))
    old = return_op(function)
    new = func.ReturnOp(*(value for value, _ in results))
    new.location = old.location
    Rewriter.replace_op(old, new)
    function.update_function_type()
    short = ((label, replace(label, target_role="")) for _, label in results)
    labels = [plain if len(arguments.updated_by(plain)) == 1 else label for label, plain in short]
    function.res_attrs = ArrayAttr([label.to_attribute() for label in labels])


def verify_signature(function: func.FuncOp) -> None:
    """
    Check the labels of a step; functions without labels pass.

    Roles are known. Names are given and unique in their role. Params are of floating-point type. A grad names a
    param and an update one argument, of its type. There is at most one status, and it is argument and result. No
    two results are the same.
    """
    arguments = list(zip(argument_labels(function), function.function_type.inputs.data, strict=True))
    results = list(zip(result_labels(function), function.function_type.outputs.data, strict=True))
    index_of = ArgumentIndex([label for label, _ in arguments])
    known: set[tuple[str, str]] = set()
    for index, (label, type) in enumerate(arguments):
        where = f"argument {index} of @{function.sym_name.data}"
        _verify_label(where, label, ARGUMENT_ROLES)
        if label.role == "param" and not is_float_type(type):
            raise VerifyException(f"{where}: expected a param to be a tensor of {FLOAT_NAMES}, got {type}")
        if label.role == STATUS:
            _verify_status(where, type, [other for other, _ in arguments])
        if label.role and (label.role, label.name) in known:
            raise VerifyException(f'{where}: expected one {label.role} named "{label.name}", got a second')
        known.add((label.role, label.name))
    sides = [any(label.role == STATUS for label, _ in side) for side in (arguments, results)]
    if sides == [True, False]:
        raise VerifyException(
            f"@{function.sym_name.data}: expected the status among the results too, got none"
        )
    for index, (label, type) in enumerate(results):
        where = f"result {index} of @{function.sym_name.data}"
        _verify_label(where, label, RESULT_ROLES)
        if label.role in ("grad", "update"):
            target = replace(label, target_role="param") if label.role == "grad" else label
            _verify_target(where, target, type, [arguments[i] for i in index_of.updated_by(target)])
        elif label.target_role:
            raise VerifyException(f'{where}: expected {OF} beside {ROLE} = "update" only')
        elif label.role == STATUS:
            _verify_status(where, type, [other for other, _ in results])
            if not any(argument.role == STATUS for argument, _ in arguments):
                raise VerifyException(f'{where}: expected an argument with {ROLE} = "{STATUS}", got none')
    if function.is_declaration:
        return
    seen: set[Key] = set()
    for index, (key, (label, _)) in enumerate(zip(result_keys(function), results, strict=True)):
        if key in seen:
            what = f"{label.role or key[0]} named {key[1]!r}"
            raise VerifyException(
                f"result {index} of @{function.sym_name.data}: expected one {what}, got a second"
            )
        seen.add(key)


def _verify_status(where: str, type: Attribute, labels: Sequence[Label]) -> None:
    """Check that there is one status on a side, of its type."""
    if type != STATUS_TYPE:
        raise VerifyException(f"{where}: expected a status of type {STATUS_TYPE}, got {type}")
    if (count := sum(label.role == STATUS for label in labels)) > 1:
        raise VerifyException(f"{where}: expected one status, got {count}")


def _verify_label(where: str, label: Label, roles: Sequence[str]) -> None:
    if label.role and label.role not in roles:
        raise VerifyException(
            f'{where}: expected {ROLE} to be one of {", ".join(roles)}, got "{label.role}"{if_renamed(label.role)}'
        )
    if label.role and label.role != "loss" and not label.name:
        raise VerifyException(f'{where}: expected an {NAME} beside {ROLE} = "{label.role}", got none')


def _verify_target(
    where: str, label: Label, type: Attribute, found: Sequence[tuple[Label, Attribute]]
) -> None:
    """Check that a grad or an update names one argument, of the same type; `found` are the possible ones."""
    if not found:
        wanted = f"a {label.target_role}" if label.target_role else "an argument"
        raise VerifyException(f'{where}: expected the {label.role} to name {wanted}, got "{label.name}"')
    if len(found) > 1:
        roles = ", ".join(argument.role for argument, _ in found)
        raise VerifyException(f'{where}: expected {OF} to be one of {roles}: each has a "{label.name}"')
    target = found[0][0]
    if label.role == "update" and (target.is_literal or target.role not in KEPT_ROLES):
        what = "literal" if target.is_literal else target.role
        raise VerifyException(
            f'{where}: expected the update of a {", ".join(KEPT_ROLES)}, got one of the {what} "{label.name}"'
        )
    if type != (expected := found[0][1]):
        raise VerifyException(f'{where}: expected the type of "{label.name}", {expected}, got {type}')

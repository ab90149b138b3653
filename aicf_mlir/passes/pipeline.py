"""Passes from their textual form `name{option=value option=value},name`, and running them one by one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from importlib import import_module
from time import perf_counter
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, ParameterListType, ParameterType, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError, ParseError
from xdsl.utils.hints import isa, type_repr

from aicf_mlir.errors import AicfError
from aicf_mlir.ir.diagnostics import failing_op
from aicf_mlir.ir.locations import origin
from aicf_mlir.ir.renamed import now_called
from aicf_mlir.ir.verify import Verifier
from aicf_mlir.passes import get_all_passes


@dataclass(frozen=True)
class StockPass:
    """A pass of xDSL: its module, and its description in our words."""

    module: str
    class_name: str
    meaning: str

    def load(self) -> type[ModulePass]:
        """Import the pass."""
        return getattr(import_module(self.module), self.class_name)


STOCK_PASSES = {
    "canonicalize": StockPass(
        "xdsl.transforms.canonicalize",
        "CanonicalizePass",
        "Rewrite every op to its canonical form and fold constants, until nothing changes.",
    ),
    "cse": StockPass(
        "xdsl.transforms.common_subexpression_elimination",
        "CommonSubexpressionElimination",
        "Merge pure ops that compute the same.",
    ),
    "dce": StockPass(
        "xdsl.transforms.dead_code_elimination",
        "DeadCodeElimination",
        "Remove pure ops whose results nobody uses.",
    ),
}


PassTable = Mapping[str, Callable[[], type[ModulePass]]]
"""Loaders of passes by flag."""


def available_passes() -> dict[str, Callable[[], type[ModulePass]]]:
    """The passes of the tree: AICF's in the order of the pipeline, then those of xDSL."""
    return {**get_all_passes(), **{flag: stock.load for flag, stock in STOCK_PASSES.items()}}


def describe_pass(flag: str, passes: PassTable | None = None) -> str:
    """Describe a pass of `passes` (default: those of the tree) in one line."""
    if (stock := STOCK_PASSES.get(flag)) is not None:
        return stock.meaning
    table = available_passes() if passes is None else passes
    return " ".join((table[flag]().__doc__ or "").strip().split("\n\n")[0].split())


class PassSpecError(AicfError):
    """A list of passes that cannot be understood: syntax, pass name, option name or option value."""


class BeforePass(Protocol):
    """Called before a pass runs."""

    def __call__(self, coming: ModulePass, module: ModuleOp) -> None: ...


class AfterPass(Protocol):
    """Called after a pass has run, with its wall time in seconds."""

    def __call__(self, done: ModulePass, module: ModuleOp, seconds: float) -> None: ...


def parse_passes(text: str, passes: PassTable | None = None) -> tuple[ModulePass, ...]:
    """Parse `text` to passes of `passes` (default: those of the tree); raise `PassSpecError` if it is invalid."""
    try:
        specs = tuple(parse_pipeline(text))
    except (ArgSpecParseError, ParseError) as error:
        details = str(error).removeprefix("Error parsing pass pipeline specification:\n")
        raise PassSpecError(
            f"cannot read the pass list {text!r}: write name{{option=value option=value}}, with quotes around"
            f" values that hold anything but letters, digits, '_' and '-'\n{details.rstrip()}"
        ) from None
    table = available_passes() if passes is None else passes
    return tuple(build_pass(spec, table) for spec in specs)


def check_pass_name(name: str, passes: PassTable) -> None:
    """Raise `PassSpecError` for a pass that is not among `passes`; it suggests a similar name."""
    if name not in passes:
        near = get_close_matches(name, passes, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known passes: {', '.join(passes)}"
        raise PassSpecError(f"unknown pass '{name}'; {now_called(name) or hint}")


def build_pass(spec: ArgSpec, passes: PassTable) -> ModulePass:
    """The pass that `spec` describes, its options checked."""
    check_pass_name(spec.name, passes)
    pass_type = passes[spec.name]()
    types = get_type_hints(pass_type)
    options = {field.name: types[field.name] for field in fields(pass_type)}
    values = dict[str, ParameterListType]()
    for name, value in spec.normalize_parameter_names().parameters.items():
        if name not in options:
            written = name.replace("_", "-")
            raise PassSpecError(
                f"pass '{spec.name}' has no option '{written}'; {describe_options(pass_type)}"
            )
        values[name] = _converted(value, options[name])
        if not _fits(values[name], options[name]):
            given = ",".join(map(str, value)) or "nothing"
            option = f"option '{name.replace('_', '-')}' of pass '{spec.name}'"
            raise PassSpecError(f"{option} must be {_type_name(options[name])}, got {given}")
    try:
        return pass_type.from_spec(ArgSpec(spec.name, values))
    except (ValueError, TypeError, AicfError) as error:
        raise PassSpecError(f"pass '{spec.name}': {error}; {describe_options(pass_type)}") from None


def _converted(value: ParameterListType, wanted: Any) -> ParameterListType:
    """`flag` alone means true; `1` and `1e-3` are floats where one is wanted (xDSL: int and string)."""
    if wanted is bool and value == ():
        return (True,)
    if wanted in (float, float | None):
        return tuple(_as_float(item) for item in value)
    return value


def _fits(value: ParameterListType, wanted: Any) -> bool:
    single = len(value) == 1 and isa(value[0], wanted)
    return single or isa(value, wanted) or (value == () and isa(None, wanted))


def _as_float(item: ParameterType) -> ParameterType:
    try:
        return item if isinstance(item, bool) else float(item)
    except ValueError:
        return item


def describe_options(pass_type: type[ModulePass]) -> str:
    """The options of a pass with their types and defaults, in words."""
    types = get_type_hints(pass_type)
    shown: list[str] = []
    for option in fields(pass_type):
        default = str(getattr(pass_type, option.name, "(required)"))
        name, kind = option.name.replace("_", "-"), _type_name(types[option.name])
        shown.append(f"{name}: {kind} = {default.lower()}")
    return f"its options: {', '.join(shown)}" if shown else "it takes no options"


def _type_name(wanted: Any) -> str:
    return " | ".join(get_args(wanted)) if get_origin(wanted) is Literal else type_repr(wanted)


def unverified(module: ModuleOp) -> None:
    """Verify nothing, as the `verifier` of `run_passes`."""


def run_passes(
    context: Context,
    module: ModuleOp,
    passes: Sequence[ModulePass],
    *,
    verifier: Callable[[ModuleOp], None] | None = None,
    before_each: BeforePass | None = None,
    after_each: AfterPass | None = None,
) -> None:
    """Run `passes` on `module` in place, verifying after each; errors carry the pass name as a note.

    `verifier` is by default a `Verifier` of this call; one that has seen the module before need not look at it twice.
    """
    verifier = Verifier() if verifier is None else verifier
    for current in passes:
        if before_each is not None:
            before_each(current, module)
        start = perf_counter()
        with _noted(f"while running pass '{current.name}'"):
            current.apply(context, module)
        seconds = perf_counter() - start
        if after_each is not None:
            after_each(current, module, seconds)
        with _noted(f"found after pass '{current.name}'"):
            verifier(module)


@contextmanager
def _noted(note: str) -> Generator[None]:
    try:
        yield
    except Exception as error:
        op = failing_op(error)
        if op is not None and (where := origin(op)) is not None and where.layer:
            error.add_note(f"at {where}")
        error.add_note(note)
        raise

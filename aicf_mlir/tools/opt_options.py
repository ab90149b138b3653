"""The command line of aicf-opt: its options, and the passes that it requests.

An option that mlir-opt has is called as there, and means the same; mlir-opt's prefix `mlir-` may be left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.passes import ModulePass

from aicf_mlir.passes.pipeline import (
    PassSpecError,
    PassTable,
    check_pass_name,
    describe_options,
    describe_pass,
    parse_passes,
)
from aicf_mlir.passes.vote_ranks import passes_of_ranks
from aicf_mlir.reports.describe import Description, to_json, to_table
from aicf_mlir.reports.sources import LANGUAGES
from aicf_mlir.stages import STAGES, Stage, stage_range
from aicf_mlir.tools.command_line import ToolParser, VersionAction
from aicf_mlir.tools.plugins import OutsidePass, PluginError, origin_of
from aicf_mlir.tuning.obeyed import HeldLocks, lock_options

DESCRIPTION = """\
Read a file of AICF dialects, run passes on it in the order typed, and print the result.

  aicf-opt --lower --fuse examples/mlp.mlir
  aicf-opt --stage plan --target sm_90 examples/train_step.mlir
  aicf-opt -p "lower,fuse,select-kernels{target=sm_90}" -o out.mlir model.mlir
  aicf-opt --pass-pipeline="builtin.module(lower,fuse)" --mlir-print-ir-after=fuse model.mlir
"""


@dataclass(frozen=True)
class Step:
    """Passes to run, and the stage that they complete, if any."""

    passes: tuple[ModulePass, ...]
    stage: Stage | None = None


SWITCHES = {
    "--verify-diagnostics": "check messages against // expected-error {{…}}; without, print them and exit 0",
    "--split-input-file": "treat the pieces between // ----- lines one by one",
    "--allow-unregistered-dialect": "accept ops of unknown dialects",
    "--print-ir-before-all": "print the module before each pass, to standard error",
    "--print-ir-after-all": "print the module after each pass, to standard error",
    "--print-ir-after-change": "of the dumps after passes, print those of passes that changed something;"
    " alone, look at each pass",
    "--print-op-generic": "print the generic form",
    "--print-debuginfo": "print locations",
    "--remarks": "say what was not fused, which preferred kernels were declined, and why, to standard error",
    "--timing": "print a table of times, to standard error",
    "--list-passes": "print every pass with its options",
    "--debug": "show the Python traceback of an internal error, and of a plugin that fails to load",
}

PLUGIN = "--load-pass-plugin"

WITH_VALUE: Mapping[str, tuple[str, str]] = {
    PLUGIN: ("PLUGIN", "take further passes from PATH.py or a module; docs/tools.md has an example"),
    "--print-ir-before": ("PASSES", "print the module before each of these passes (a,b), to standard error"),
    "--print-ir-after": ("PASSES", "print the module after each of these passes (a,b), to standard error"),
}

PREFIXED = {
    "--print-ir-before-all",
    "--print-ir-after-all",
    "--print-ir-after-change",
    "--print-ir-before",
    "--print-ir-after",
    "--print-op-generic",
    "--print-debuginfo",
    "--timing",
    "--elide-elementsattrs-if-larger",
}
"""The options that mlir-opt spells with `mlir-` before the name."""

SHORTHANDS = {
    "--describe": "--describe=text",
    "--verify-each=true": "--verify-each",
    "--verify-each=1": "--verify-each",
    "--verify-each=false": "--no-verify-each",
    "--verify-each=0": "--no-verify-each",
}
"""Arguments that stand for others: a value that is left out, and mlir-opt's spellings of an option that is on or off."""

DESCRIBE: Mapping[str, Callable[[Sequence[Description]], str]] = {"text": to_table, "json": to_json}
"""The forms of `--describe`."""

_ANCHORED = re.compile(r"\s*(?:builtin\.module|any)\s*\((.*)\)\s*", re.DOTALL)
_NESTED = re.compile(r"([\w.]+)\s*\(")


def spellings(option: str) -> list[str]:
    """`--timing` and `--mlir-timing`: the names of an option."""
    return [option, f"--mlir-{option.removeprefix('--')}"] if option in PREFIXED else [option]


def plugins_of(command: Sequence[str]) -> list[str]:
    """The plugins that a command line names: their passes must be there before it can be read."""
    scan = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    scan.add_argument(PLUGIN, dest="plugins", action="append", default=[])
    try:
        return scan.parse_known_args(command)[0].plugins
    except argparse.ArgumentError:  # an option without its value: the parser of all options reports it
        return []


def build_parser(passes: PassTable) -> ToolParser:
    """The options of aicf-opt; each of `passes` is a flag.

    Raises `PluginError` for a pass with the name of an option.
    """
    stages = "\n".join(f"  {stage.name:8} {stage.meaning:45} {','.join(stage.passes)}" for stage in STAGES)
    epilog = f"passes, each a flag (--list-passes describes them):\n  {' '.join(passes)}\n\nstages:\n{stages}"
    parser = ToolParser("aicf-opt", passes=passes, description=DESCRIPTION, epilog=epilog)
    add = parser.add_argument
    add("input", nargs="?", default="-", metavar="FILE", help="input, - for standard input (default)")
    add("-o", dest="output", default="-", metavar="FILE", help="output, - for standard output (default)")
    steps = add("-p", "--passes", dest="steps", action="append", metavar="LIST")
    steps.type, steps.help = (
        _passes,
        'passes to run, as "a,b{x=1 y=2}"; pass flags and -p run in the order typed',
    )
    steps = add("--pass-pipeline", dest="steps", action="append", metavar="PIPELINE")
    steps.type, steps.help = _pipeline, 'the same in mlir-opt\'s form, "builtin.module(a,b{x=1 y=2})"'
    steps = add("--stage", dest="steps", action="append", metavar="NAME[=target=T]")
    steps.type, steps.help = _stage, "run the whole pipeline up to this stage"
    add("--target", default="cpu", metavar="T", help="target of --stage: cpu (default), sm_80, sm_90, …")
    mesh = add("--mesh", metavar="NAME=N", type=_mesh)
    mesh.help = "a --stage for N processes, as dp=2: they take the mean of their gradients"
    zero = add("--zero", type=int, default=0, choices=(0, 1, 2))
    zero.help = "with --mesh: the stage of ZeRO, 1 divides the optimizer's state, 2 gradients too"
    add("--rank", metavar="RANK", type=int, default=0, help="with --zero: the rank whose step is printed (0)")
    add("--lock", metavar="FILE", help="the kernels that --stage takes, as aicf-tune has measured them")
    verify = add("--verify-each", action=argparse.BooleanOptionalAction, default=True)
    verify.help = "verify after each pass (default)"
    described = add("--describe", choices=tuple(DESCRIBE))
    described.help = (
        "print what each launch reads, writes and stands for instead of the module; text by itself"
    )
    emitted = add("--emit", choices=tuple(LANGUAGES))
    emitted.help = "print the code of the generated kernels of a plan instead of the module"
    for switch, meaning in SWITCHES.items():
        add(*spellings(switch), action="store_true", help=meaning)
    for option, (value, meaning) in WITH_VALUE.items():
        add(*spellings(option), action="append", default=[], metavar=value, help=meaning)
    elide = add(*spellings("--elide-elementsattrs-if-larger"), dest="elide", metavar="N", type=_count)
    elide.help = "leave out the elements of literals with more than N, unless all are the same"
    add("--version", action=VersionAction)
    for name, load in passes.items():
        if parser.has_option(f"--{name}"):
            raise PluginError(f"pass '{name}' of {origin_of(load)} is called as an option is: rename it")
    return parser


def _passes(text: str) -> tuple[str, str]:
    return "passes", text


def _pipeline(text: str) -> tuple[str, str]:
    return "pipeline", text


def _stage(text: str) -> tuple[str, str]:
    return "stage", text


def _mesh(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not name.isidentifier() or not count.isdecimal() or int(count) < 1:
        raise argparse.ArgumentTypeError(
            f"expected a name and a number of processes such as dp=2, got {text!r}"
        )
    return name, int(count)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of elements such as 16, got {text!r}")
    return int(text)


def passes_of_pipeline(text: str) -> str:
    """`lower,fuse` of `builtin.module(lower,fuse)`; raises `PassSpecError` for passes on anything else."""
    anchored = _ANCHORED.fullmatch(text)
    inner = anchored[1] if anchored is not None else text
    if (nested := _NESTED.search(inner)) is not None:
        raise PassSpecError(
            f"every pass works on the whole module, got passes on '{nested[1]}':"
            " write them without it, as in builtin.module(canonicalize,cse)"
        )
    return inner.strip()


def build_steps(
    requests: Sequence[tuple[str, str]],
    target: str,
    passes: PassTable,
    lock: str | None = None,
    mesh: tuple[str, int] | None = None,
    zero: int = 0,
    rank: int = 0,
) -> tuple[list[Step], HeldLocks]:
    """The passes and stages that the command line requests, in order, and the locks to hold the result against.

    `target`, `lock`, `mesh`, `zero` and `rank` are for stages. Raises `PassSpecError`, also for a lock if no stage selects
    kernels, for a mesh without a stage, for `zero` without a mesh, and for a rank without `zero`.
    """
    steps: list[Step] = []
    held = HeldLocks()
    of_stages = {
        **({} if lock is None else lock_options(lock)),
        **({} if mesh is None else passes_of_ranks(*mesh, zero, rank)),
    }
    if mesh is not None and all(kind != "stage" for kind, _ in requests):
        raise PassSpecError(
            "--mesh is for --stage; the passes of several processes are average-ranks and vote-ranks"
        )
    if zero and mesh is None:
        raise PassSpecError("--zero is for --mesh: it divides what several processes keep")
    if rank and not zero:
        raise PassSpecError("--rank is for --zero: without it all processes have one step")
    is_taken = lock is None
    for kind, text in requests:
        if kind != "stage":
            listed = passes_of_pipeline(text) if kind == "pipeline" else text
            steps.append(Step(held.hand_on(parse_passes(listed, passes))))
            continue
        name, _, option = text.partition("=")
        key, _, value = option.partition("=")
        if option and (key != "target" or not value):
            raise PassSpecError(f"stage '{name}' takes one option, target=…, not '{option}'")
        try:
            rows = stage_range(name)
        except ValueError as error:
            raise PassSpecError(str(error)) from None
        for row in rows:
            taken = len(held.paths)
            steps.append(Step(held.hand_on(parse_passes(row.pass_list(value or target, of_stages))), row))
            is_taken |= len(held.paths) > taken
    if not is_taken:
        raise PassSpecError(
            "--lock is for --stage kernel, buffers or plan, and no stage here selects kernels;"
            " a pass takes it as select-kernels{lock=…}"
        )
    return steps, held


def named_passes(texts: Sequence[str], passes: PassTable) -> frozenset[str]:
    """The passes that options like `--print-ir-after=a,b` name; raises `PassSpecError` for one that is not there."""
    names = frozenset(name.strip() for text in texts for name in text.split(","))
    for name in sorted(names):
        check_pass_name(name, passes)
    return names


def list_passes(passes: PassTable) -> str:
    """Every pass: name, first line of its description, options, and whose it is if not AICF's."""
    lines: list[str] = []
    for name, load in passes.items():
        lines += [f"--{name}", f"    {describe_pass(name, passes)}", f"    {describe_options(load())}"]
        lines += [f"    from {load.origin}"] if isinstance(load, OutsidePass) else []
    return "".join(f"{line}\n" for line in lines)

"""`aicf-trace FILE.py:FUNCTION -o model.mlir`: write the front end's view of a train step, or the ops that it refuses."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from aicf_mlir.ir.printing import to_text
from aicf_mlir.tools.command_line import FAILED, OK, ToolParser, VersionAction, guarded
from aicf_mlir.tools.source import write_output

DESCRIPTION = """\
Write forward and loss of a train step as text, before any pass.

  aicf-trace examples/mlp.py:mlp
  aicf-trace examples/mlp.py:mlp | aicf-opt --stage kernel -
  aicf-trace --survey examples/mlp.py:mlp

FUNCTION takes no arguments and returns a dictionary: "model", "batch" (an example), and optionally
"optimizer" and "loss_fn" (a function of model and batch; default: mean squared error of model(batch["x"])
against batch["t"]).
"""


FORMS = ("text", "json")
"""The forms of `--survey`; text is the default."""


def build_parser() -> ToolParser:
    """The options of aicf-trace."""
    parser = ToolParser("aicf-trace", description=DESCRIPTION)
    parser.add_argument("function", metavar="FILE.py:FUNCTION", help="builds the step")
    parser.add_argument(
        "-o", dest="output", metavar="FILE", default="-", help="output (default: standard output)"
    )
    parser.add_argument("--name", default="step", help="the name of the function (default: step)")
    parser.add_argument(
        "--locations", action="store_true", help="print the user's file, line and layer of every op"
    )
    parser.add_argument(
        "--survey",
        choices=FORMS,
        help="instead of the step, list everything in it that is not supported; exit code 1 if there is any",
    )
    parser.add_argument("--debug", action="store_true", help="show the Python traceback of an internal error")
    parser.add_argument("--version", action=VersionAction)
    return parser


def trace_to_text(function: str, name: str = "step", locations: bool = False) -> str:
    """The text of the step that `function`, FILE.py:FUNCTION, builds. Raises TraceError."""
    from aicf_mlir.frontend import trace
    from aicf_mlir.frontend.source import call_at
    from aicf_mlir.tools.user_function import load_user_step

    user = load_user_step(function)
    options = {"optimizer": user.optimizer, "name": name}
    traced = call_at(user.location, trace, user.model, user.loss_fn, user.batch, **options)
    return to_text(traced.module, locations=locations) + "\n"


def survey_of(function: str, form: str) -> tuple[str, bool]:
    """The unsupported parts of the step that `function` builds, as `form`, and True if everything is supported. Raises
    TraceError.
    """
    from aicf_mlir.frontend.source import call_at
    from aicf_mlir.frontend.surveying import survey
    from aicf_mlir.tools.user_function import load_user_step

    user = load_user_step(function)
    found = call_at(user.location, survey, user.model, user.loss_fn, user.batch, optimizer=user.optimizer)
    return f"{found.to_json() if form == 'json' else found}\n", found.supported


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    options = build_parser().parse([f"--survey={FORMS[0]}" if each == "--survey" else each for each in given])

    def run() -> int:
        if options.survey:
            text, supported = survey_of(options.function, options.survey)
            write_output(options.output, text)
            return OK if supported else FAILED
        write_output(options.output, trace_to_text(options.function, options.name, options.locations))
        return OK

    return guarded(run, "aicf-trace", arguments, debug=options.debug)


if __name__ == "__main__":
    sys.exit(main())

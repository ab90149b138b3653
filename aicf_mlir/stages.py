"""THE pipeline. Read the rows of `STAGES` from top to bottom: that is how a model becomes a plan.

Each stage runs its passes and leaves ops of its dialects only; this is checked after every stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.verify import Verifier
from aicf_mlir.passes.pipeline import parse_passes, run_passes
from aicf_mlir.text.parsing import make_context
from aicf_mlir.tuning.obeyed import HeldLocks

__all__ = [
    "STAGES",
    "STAGE_NAMES",
    "Snapshots",
    "Stage",
    "check_legal",
    "make_context",
    "next_stage",
    "run_stages",
    "stage_range",
]


@dataclass(frozen=True)
class Stage:
    """One row: a name, the passes that lead to it, and the dialects that are legal afterwards."""

    name: str
    passes: tuple[str, ...]
    """Passes with options, as on the command line; `$target` stands for the target. One with `?` runs where it is asked for."""
    dialects: frozenset[str]
    meaning: str

    def pass_list(self, target: str, options: Mapping[str, str] | None = None) -> str:
        """The passes as one text for `-p`; `options` adds to a pass, and asks for it: {"apply-optimizer": "keep-grads"}."""
        asked, texts = options or {}, list[str]()
        for text in self.passes:
            name, _, given = text.removesuffix("}").partition("{")
            if name.endswith("?") and name[:-1] not in asked:
                continue
            name = name.removesuffix("?")
            given = f"{given} {asked.get(name, '')}".strip().replace("$target", f'"{target}"')
            texts.append(f"{name}{{{given}}}" if given else name)
        return ",".join(texts)


TENSORS = frozenset({"builtin", "func", "nn"})
BODY = TENSORS | {"train"}
UPDATES = TENSORS | {"optim"}
BODIES = frozenset({"scalar", "arith", "math"})
KERNELS = BODIES | {"builtin", "func", "kernel"}
PLANS = BODIES | {"builtin", "plan"}

STAGES: tuple[Stage, ...] = (
    Stage("nn", ("canonicalize", "cse", "dce"), BODY, "the model and its loss, as traced"),
    Stage(
        "grad",
        (
            "merge-products{target=$target}",
            "autodiff",
            "join-products{target=$target}",
            "accumulate?",
            "sum-ranks",
            "average-ranks?",
            "divide-gradients?",
        ),
        BODY,
        "with the gradient of the loss",
    ),
    Stage(
        "step",
        (
            "check-finite?",
            "scale-loss?",
            "clip-gradients?",
            "vote-ranks?",
            "divide-updates?",
            "apply-optimizer",
            "skip-overflow?",
            "gather-updates?",
            "average-weights?",
            "canonicalize",
            "cse",
            "dce",
        ),
        UPDATES,
        "the whole train step, still pure",
    ),
    Stage(
        "lowered",
        ("keep-scores{target=$target}", "convolutions{target=$target}", "decompose{target=$target}", "lower"),
        KERNELS,
        "one op, one launch",
    ),
    Stage(
        "fused",
        # fuse applies passes.fuse.RULES, each a pass of its own
        ("fuse{target=$target}", "recompute{target=$target}", "dce"),
        KERNELS,
        "epilogues of products, and the rest of the updates in one launch",
    ),
    Stage(
        "kernel",
        (
            "large-constants{target=$target}",
            "split-dimensions",
            "elide-copies{target=$target}",
            "straighten-rows{target=$target}",
            "merge-copies{target=$target}",
            "keep-parts{target=$target}",
            "select-kernels{target=$target}",
        ),
        KERNELS,
        "every launch with its kernel id, on views where it takes them",
    ),
    Stage(
        "buffers",
        ("bufferize", "persistent-weights", "free-early", "multi-stream?", "prefetch"),
        PLANS,
        "values are slots with a role",
    ),
    Stage("plan", ("plan-memory",), PLANS, "every slot has an address"),
)

STAGE_NAMES: tuple[str, ...] = tuple(stage.name for stage in STAGES)


def stage_range(until: str, first: str = "nn") -> tuple[Stage, ...]:
    """The rows from `first` to `until`, both included; raises `ValueError` for unknown names."""
    for name in (first, until):
        if name not in STAGE_NAMES:
            raise ValueError(f"unknown stage '{name}'; the stages are {', '.join(STAGE_NAMES)}")
    return STAGES[STAGE_NAMES.index(first) : STAGE_NAMES.index(until) + 1]


def check_legal(module: ModuleOp, stage: Stage) -> None:
    """Raise at the first op whose dialect is not legal after `stage`."""
    for op in module.walk():
        if op.dialect_name() not in stage.dialects:
            legal = ", ".join(sorted(stage.dialects))
            message = f"'{op.name}' is not legal after stage '{stage.name}', which leaves ops of {legal} only"
            op.emit_error(message, VerifyException(message))


class Snapshots(Mapping[str, ModuleOp]):
    """Pass one as `after_each`: copies of the module by stage. Text is made when it is asked for."""

    def __init__(self, last: str = "") -> None:
        """`last`: a stage whose module is kept itself, where nobody changes it any more."""
        self._modules: dict[str, ModuleOp] = {}
        self._last = last

    def __call__(self, stage: str, module: ModuleOp) -> None:
        """Keep a copy of `module`."""
        self._modules[stage] = module if stage == self._last else module.clone()

    def __getitem__(self, name: str) -> ModuleOp:
        if name not in self._modules:
            raise KeyError(f"no stage '{name}' here; there are {', '.join(self._modules) or 'none'}")
        return self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def text(self, name: str) -> str:
        """The module after stage `name`, as text."""
        return to_text(self[name])


def run_stages(
    module: ModuleOp,
    context: Context,
    *,
    until: str = "plan",
    target: str = "cpu",
    first: str = "nn",
    options: Mapping[str, str] | None = None,
    after_each: Callable[[str, ModuleOp], None] | None = None,
    verifier: Verifier | None = None,
) -> None:
    """Run the stages `first` … `until` on `module` in place for `target` (`cpu`, `sm_90`, …).

    `options` gives passes further options by name; `after_each` sees the name of each stage and the module
    after it; `verifier` counts the time of verification. Errors are those of the passes, `VerifyException`
    for IR that is not legal after its stage, and LockError and SelectionError where select-kernels got a lock
    and the module that comes out does not obey it.
    """
    held = HeldLocks()
    verifier = Verifier() if verifier is None else verifier
    verifier(module)
    stages = stage_range(until, first)
    for stage in stages:
        if stage is stages[-1]:
            verifier.forget()  # what comes out has been verified as a whole
        passes = held.hand_on(parse_passes(stage.pass_list(target, options)))
        run_passes(context, module, passes, verifier=verifier)
        check_legal(module, stage)
        if after_each is not None:
            after_each(stage.name, module)
    held.check(module)


def next_stage(module: ModuleOp) -> str | None:
    """The first stage that `module` still needs to become a plan of the same meaning; None for a plan.

    Functions are lowered as they are: neither differentiated nor given an optimizer.
    """
    dialects = {op.dialect_name() for op in module.walk()}
    if "plan" in dialects:
        return None if any("peak" in op.properties for op in module.ops) else "plan"
    return "kernel" if "kernel" in dialects and not dialects & {"nn", "optim"} else "lowered"

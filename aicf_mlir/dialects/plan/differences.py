"""The differences between a plan and the one that it was made of: in its text, by names, and in its computations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan.formulas import Formulas
from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.memory import ArenaOp, SlotOp
from aicf_mlir.dialects.plan.program import find_program
from aicf_mlir.dialects.scalar import BodyOp

KINDS = {"body": BodyOp, "launch": LaunchOp, "slot": SlotOp, "arena": ArenaOp}
"""The parts of a plan; the most informative come first."""

OF_ORDER = ("after", "live")
"""The properties that follow from the order of the launches."""

WORK = ("op", "inputs", "outputs", "input_counts", "output_counts", "attrs")
"""The properties of a launch that determine its computation. The others determine its kernel and its order."""


SHOWN = 5
"""Names that a message tells."""


@dataclass(frozen=True)
class PlanComparison:
    """The comparison of a plan with the step's own."""

    text: tuple[str, ...]
    """The differences of its text, a few words each: `launch @k3`, `no slot @c0`."""
    results: tuple[str, ...]
    """The results that it computes by other formulas: `param '0.weight'`."""
    first: str | None
    """The first launch with a formula that the step's own plan does not have."""
    places: Mapping[str, int]
    """The places of the launches in the step's own plan, by symbol."""

    @staticmethod
    def of(own: ModuleOp, plan: ModuleOp) -> PlanComparison:
        """The comparison of `plan` with `own`; both are valid, with results of the same roles and names."""
        expected, got = Formulas(own), Formulas(plan)
        known = set(expected.launches.values())
        return PlanComparison(
            tuple(differences(own, plan)),
            tuple(
                f"{role} {name!r}"
                for (role, name), formula in got.results.items()
                if formula != expected.results[role, name]
            ),
            next((symbol for symbol, formula in got.launches.items() if formula not in known), None),
            {symbol: place for place, symbol in enumerate(expected.launches)},
        )

    def __str__(self) -> str:
        """The differences from the step's own plan, as the end of a sentence."""
        if not self.text and not self.results:
            return "it is the step's own"
        computed = f"by other formulas {listed(self.results)}" if self.results else "the same"
        return f"it differs from the step's own in {listed(self.text)}, and computes {computed}"


def listed(names: Sequence[str], between: str = ", ") -> str:
    """The first names of some, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return between.join(names[:SHOWN]) + more


def differences(own: ModuleOp, plan: ModuleOp) -> list[str]:
    """The differences of `plan` from `own`, in a few words each."""
    old, new = ([launch.symbol for launch in find_program(module).launches] for module in (own, plan))
    moved = [symbol for symbol in old if symbol in new] != [symbol for symbol in new if symbol in old]
    found = ["the order of launches"] if moved else []
    for kind, op_type in KINDS.items():
        found += _changed(kind, *(_parts(module, op_type) for module in (own, plan)))
    return found


def _changed(kind: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    for symbol in old:
        if symbol not in new:
            yield f"no {kind} @{symbol}"
    for symbol, what in new.items():
        if symbol not in old:
            yield f"one more {kind} @{symbol}"
        elif old[symbol] != what:
            yield f"{kind} @{symbol}"


def _parts(module: ModuleOp, op_type: type[BodyOp | ArenaOp | SlotOp | LaunchOp]) -> dict[str, object]:
    """For each symbol, a value that is equal for two parts with the same content."""
    ops = [op for op in (*module.ops, *find_program(module).body.block.ops) if isinstance(op, op_type)]
    return {
        op.symbol: op.body()
        if isinstance(op, BodyOp)
        else {name: value for name, value in op.properties.items() if name not in OF_ORDER}
        for op in ops
    }


def same_work(own: ModuleOp, plan: ModuleOp) -> dict[str, LaunchOp]:
    """The launches of `own`, by their symbols, whose computation in `plan` is the same as in `own`."""
    bodies = [_parts(module, BodyOp) for module in (own, plan)]
    known = {launch.symbol: launch for launch in find_program(own).launches}
    return {
        launch.symbol: known[launch.symbol]
        for launch in find_program(plan).launches
        if launch.symbol in known
        and _work(launch) == _work(known[launch.symbol])
        and all(bodies[0].get(symbol) == bodies[1].get(symbol) for symbol in launch.bodies)
    }


def _work(launch: LaunchOp) -> tuple[object, ...]:
    return tuple(launch.properties.get(name) for name in WORK)

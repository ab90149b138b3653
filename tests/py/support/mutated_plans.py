"""Plans with something exchanged, dropped, moved or repeated: refused, or run alike whatever the memory held.

Half of the mutants are repaired: their `after`, `live` and offsets are computed anew, so that many verify.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from kernel_programs import random_function
from plans import make_plan
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, i32
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.plan import LaunchOp, SlotOp, find_program
from aicf_mlir.dialects.plan.hazards import order_launches
from aicf_mlir.dialects.plan.liveness import live_ranges
from aicf_mlir.dialects.plan.memory import slot_type
from aicf_mlir.dialects.plan.text import references
from aicf_mlir.dialects.scalar import BodyOp
from aicf_mlir.errors import AicfError
from aicf_mlir.interpreters.arithmetic import ROUNDED
from aicf_mlir.ir import registry
from aicf_mlir.ir.attributes import Symbol, to_attribute
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.diagnostics import LocatedError
from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.registry import Use
from aicf_mlir.ir.roles import ROLES
from aicf_mlir.passes.plan_memory import plan
from aicf_mlir.stages import run_stages
from aicf_mlir.text.parsing import make_context, parse_module
from aicf_mlir.tools.compare import Reference, compare
from aicf_mlir.tools.plan_step import PlanStep
from aicf_mlir.tools.tensors import random_value

STEP = Path(__file__).parents[3] / "examples" / "train_step.mlir"
SIZES = {
    "32x": "4x",
    "x64x": "x8x",
    "<48": "<6",
    "x48x": "x6x",
    "<10": "<3",
    "x10x": "x3x",
    "<32xi64": "<4xi64",
}
"""The example with small tensors: the plan stays as it is."""
BODY_OPS = ("arith.addf", "arith.subf", "arith.mulf", "arith.maximumf")
FLAGS = ("trans_a", "trans_b", "maximize", "nesterov", "decoupled")


@cache
def base(index: int) -> str:
    """One of several honest plans, as text."""
    if index < 24:
        return str(make_plan(random_function(index)).get_toplevel_object())
    text = STEP.read_text()
    for old, new in SIZES.items():
        text = text.replace(old, new)
    text = text.replace("f32", ("f32", "f16", "bf16", "f64")[index % 4])
    if index >= 28:
        text = text.replace("nn.gelu", "nn.relu").replace("decoupled = true", "decoupled = false")
    module = parse_module(text)
    run_stages(module, make_context())
    return str(module)


BASES = 32


class Mutator:
    """Random changes of one program, in place."""

    def __init__(self, choose: random.Random, module: ModuleOp):
        self.choose = choose
        self.module = module
        self.program = find_program(module)

    def launch(self) -> LaunchOp:
        return self.choose.choice(self.program.launches)

    def slot(self, role: str | None = None) -> SlotOp:
        slots = list(self.program.slots.values())
        return self.choose.choice([slot for slot in slots if role in (None, slot.role.data)] or slots)

    def like(self, symbol: str) -> str:
        """A slot of the same type, or now and then any."""
        slots = self.program.slots
        same = [name for name, slot in slots.items() if slot.spec == slots[symbol].spec]
        return self.choose.choice(same if self.choose.random() < 0.9 else list(slots))

    def swap_operands(self) -> None:
        launch = self.launch()
        names = launch.reads
        i, j = self.choose.randrange(len(names)), self.choose.randrange(len(names))
        names[i], names[j] = names[j], names[i]
        launch.inputs = references(names)

    def replace_input(self) -> None:
        launch = self.launch()
        names = launch.reads
        at = self.choose.randrange(len(names))
        names[at] = self.like(names[at])
        launch.inputs = references(names)

    def replace_output(self) -> None:
        launch = self.launch()
        names = launch.writes
        at = self.choose.randrange(len(names))
        names[at] = self.like(names[at])
        launch.outputs = references(names)

    def in_place(self) -> None:
        """The output over an input, and so for all readers behind."""
        launches = self.program.launches
        at = self.choose.randrange(len(launches))
        old, new = launches[at].writes[0], self.choose.choice(launches[at].reads)
        for launch in launches[at:]:
            launch.outputs = references([new if name == old else name for name in launch.writes])
        for launch in launches[at + 1 :]:
            launch.inputs = references([new if name == old else name for name in launch.reads])

    def move_launch(self) -> None:
        launch, other = self.launch(), self.launch()
        if launch is not other:
            launch.detach()
            self.program.body.block.insert_op_before(launch, other)

    def repeat_launch(self) -> None:
        launch = self.launch()
        copy = launch.clone()
        copy.sym_name = StringAttr(f"again{self.choose.randrange(100)}")
        self.program.body.block.insert_op_after(copy, self.launch())

    def drop_launch(self) -> None:
        self.launch().detach()

    def drop_slot(self) -> None:
        self.slot().detach()

    def change_after(self) -> None:
        launch = self.launch()
        names = launch.waits_for
        if names and self.choose.random() < 0.7:
            names.remove(self.choose.choice(names))
        else:
            names.append(self.launch().symbol)
        launch.set_after(names)

    def other_kernel(self) -> None:
        launch = self.launch()
        rows = [row for row in kernels() if row[1] == launch.op.data or self.choose.random() < 0.02]
        launch.kernel_id = StringAttr(self.choose.choice(rows)[0])

    def other_op(self) -> None:
        launch = self.launch()
        name, op = self.choose.choice([row for row in kernels() if "_cpu" in row[0]])
        launch.op, launch.kernel_id = StringAttr(op), StringAttr(name)
        schema, read, written = registry.schemas()[op], len(launch.reads), len(launch.writes)
        counts = [
            [int(i < n) for i in range(len(rows))]
            for rows, n in ((schema.inputs, read), (schema.outputs, written))
        ]
        given, results = (None, None) if schema.fixed else (DenseArrayBase.from_list(i32, c) for c in counts)
        launch.input_counts, launch.output_counts = given, results

    def change_attribute(self) -> None:
        launch = self.launch()
        values = launch.values
        name = self.choose.choice([*values, *FLAGS])
        value = values.get(name, False)
        new: bool | int | float | list[int]
        if isinstance(value, bool):
            new = not value
        elif isinstance(value, float):
            new = self.choose.choice([0.0, -1.0, 0.5, 1e300, float("nan")])
        elif isinstance(value, int):
            new = self.choose.choice([0, 1, -1, 3])
        else:
            new = [self.choose.randrange(-1, 3) for _ in range(self.choose.randrange(3))]
        changed = {**launch.attrs.data, name: to_attribute(new)}
        launch.attrs = type(launch.attrs)(changed)

    def add_workspace(self) -> None:
        self.launch().workspace = references([self.slot("temp").symbol]).data[0]

    def move_slot(self) -> None:
        slot, other = self.slot(), self.slot()
        if slot.place is not None and other.place is not None:
            kind = self.choose.randrange(3)
            arena, offset = slot.place
            if kind == 0:
                slot.set_place(*other.place)
                other.set_place(arena, offset)
            else:
                slot.set_place(
                    arena, other.place[1] if kind == 1 else offset + self.choose.choice([-256, 1, 256])
                )

    def rename(self) -> None:
        slot, other = self.slot(), self.slot()
        if self.choose.random() < 0.5:
            slot.label = other.label
        else:
            slot.label, other.label = other.label, slot.label

    def change_role(self) -> None:
        slot = self.slot()
        slot.role = StringAttr(self.choose.choice(ROLES))
        if slot.place is not None and self.choose.random() < 0.8:
            slot.set_place(slot.role.data, slot.place[1])

    def change_type(self) -> None:
        slot, other = self.slot(), self.slot()
        slot.type = other.type

    def change_constant(self) -> None:
        slot = self.slot("const")
        if slot.value is not None:
            slot.value = SlotOp(
                "c", slot_type("f32", ()), "const", value=self.choose.choice([0.0, -3.0, 1e30])
            ).value

    def make_temporary(self) -> None:
        """An alias of another owner, or a temporary with an alias's memory of its own."""
        slot = self.slot("temp")
        slot.alias = None if slot.alias is not None else references([self.slot("temp").symbol]).data[0]

    def body(self) -> BodyOp | None:
        """A body of the module."""
        bodies = [op for op in self.module.ops if isinstance(op, BodyOp)]
        return self.choose.choice(bodies) if bodies else None

    def change_body(self) -> None:
        """A number, an operation or an operand of a body."""
        if (op := self.body()) is None:
            return
        body = op.body()
        if not body.lines:
            return
        at = self.choose.randrange(len(body.lines))
        line = body.lines[at]
        if isinstance(line.attr, float):
            line = line._replace(attr=self.choose.choice([0.0, -1.0, 3.0]))
        elif line.op in BODY_OPS and self.choose.random() < 0.7:
            line = line._replace(op=self.choose.choice(BODY_OPS))
        else:
            line = line._replace(args=tuple(self.choose.randrange(len(body.args) + at) for _ in line.args))
        changed = Body(body.args, (*body.lines[:at], line, *body.lines[at + 1 :]), body.results)
        with suppress(VerifyException):  # most of what does not fit is refused before it can be written
            changed.verify()
            self.module.body.block.insert_op_before(BodyOp.of(op.symbol, changed), op)
            op.detach()

    def drop_body(self) -> None:
        if (op := self.body()) is not None:
            op.detach()

    def other_body(self) -> None:
        launch, other = self.launch(), self.body()
        if launch.bodies and other is not None:
            name = Symbol(other.symbol)
            changed = {"body": name} if "body" in launch.values else {"bodies": (name, *launch.bodies[1:])}
            attrs = {key: to_attribute(value) for key, value in changed.items()}
            launch.attrs = type(launch.attrs)({**launch.attrs.data, **attrs})

    def name_kernels(self) -> None:
        """Give each generated launch the id of its kernel, as whoever edits a body has to."""
        selection, slots = Selection(self.module, self.program.target.data), self.program.slots
        for launch in self.program.launches:
            if launch.bodies:
                inputs, outputs = (
                    [slots[name].operand_spec for name in names] for names in (launch.reads, launch.writes)
                )
                use = Use.of(launch.op.data, inputs, outputs, launch.values, launch.counts)
                launch.kernel_id = StringAttr(selection.select(use)[0])

    def repair(self) -> None:
        """Compute kernel ids, order, live ranges and places anew."""
        if self.choose.random() < 0.7:
            self.name_kernels()
        for slot in self.program.slots.values():
            slot.live = None
        if self.choose.random() < 0.7:
            plan(self.program)
        else:
            order_launches(self.program.launches, self.program.slots)
            used = live_ranges(self.program.launches, self.program.slots)
            for name, slot in self.program.slots.items():
                if slot.role.data == "temp" and slot.alias is None and name in used:
                    slot.set_live(*used[name])

    CHANGES: tuple[Callable[..., None], ...] = (
        swap_operands,
        replace_input,
        replace_input,
        replace_output,
        in_place,
        move_launch,
        move_launch,
        repeat_launch,
        drop_launch,
        drop_slot,
        change_after,
        other_kernel,
        other_op,
        other_op,
        change_attribute,
        change_body,
        change_body,
        drop_body,
        other_body,
        add_workspace,
        add_workspace,
        move_slot,
        rename,
        change_role,
        change_type,
        change_constant,
        make_temporary,
    )


@cache
def kernels() -> list[tuple[str, str]]:
    """Id and op of every registered kernel."""
    from aicf_mlir import _C

    assert registry.schemas()
    return [(row["name"], row["op"]) for row in _C.kernel_variants()]


def mutated(seed: int) -> str:
    """A plan with one to three changes, as text."""
    choose = random.Random(seed)
    module: ModuleOp = parse_module(base(choose.randrange(BASES)))
    mutator = Mutator(choose, module)
    for _ in range(choose.choice([1, 1, 2, 3])):
        if mutator.program.launches:
            with suppress(KeyError):  # an earlier change dropped what this one looks for
                choose.choice(Mutator.CHANGES)(mutator)
    if choose.random() < 0.7:
        with suppress(KeyError, AicfError):  # too broken to be repaired
            mutator.repair()
    return str(module)


def run_text(text: str) -> str:
    """`refused`, `ran`, or the fault of a plan that verifies."""
    try:
        module = parse_module(text)
    except LocatedError:
        return "refused"
    if to_text(parse_module(to_text(module))) != to_text(module):
        return "fault: the text does not round-trip"
    step = PlanStep(module, "cpu")
    values = {tensor.key: random_value(tensor, 0, step.names[tensor.key]) for tensor in step.arguments}
    steps = 2
    noise = np.random.default_rng(0)
    fills: list[Callable[[int], bytes]] = [bytes, lambda size: b"\xff" * size, noise.bytes]
    runs = [step.run(values, steps, garbage=fill) for fill in fills]
    for run in runs[1:]:
        if different := [key for key in run if run[key].tobytes() != runs[0][key].tobytes()]:
            return f"fault: {different} depends on what the memory held"
    reference = Reference.of(lambda arithmetic: step.interpret(values, steps, arithmetic))
    without_memory = step.evaluate(values, steps, ROUNDED)
    for key, value in reference.rounded.items():
        if value.tobytes() != without_memory[key].tobytes():
            return f"fault: {key} depends on its memory in the interpreter"
    table, agreed = compare(runs[0], reference, step.names)
    if not agreed:
        return f"fault: the interpreter disagrees\n{table}"
    return "ran"


def run_job(job: str) -> str:
    """The outcome of the mutant of a seed."""
    with np.errstate(all="ignore"):
        return run_text(mutated(int(job)))

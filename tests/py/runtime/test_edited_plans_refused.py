"""Edited plans that a step refuses, with the difference, and what it does not refuse: nothing changes, or it is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from edited_plans import Gated, Trained, after_two_steps, mlp_of_classes, run_edit
from models import classification, cross_entropy, mlp, regression
from oracle import assert_same_bits
from workers import run_all, summary
from xdsl.dialects.builtin import StringAttr

from aicf_mlir import _C, AicfError, BindError, VerifyError, trace
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp, find_program
from aicf_mlir.dialects.plan.text import references
from aicf_mlir.stages import make_context, run_stages
from aicf_mlir.text.parsing import parse_module


def refused(trained: Trained, plan: Any, kind: type[AicfError] = AicfError, **options: Any) -> str:
    """The error of a step that is compiled with `plan`; nothing of model and optimizer has changed."""
    before, places = trained.values(), trained.places()
    with pytest.raises(kind) as error:
        trained.compiled(plan=plan, **options)
    assert_same_bits(trained.values(), before)
    assert trained.places() == places and not trained.trained_by.state
    return str(error.value)


def changed(text: str, old: str, new: str) -> str:
    """The text with `new` in place of `old`, which is there."""
    assert old in text
    return text.replace(old, new)


def classes() -> Trained:
    return Trained(mlp_of_classes, loss_fn=cross_entropy, batch=classification(5))


def test_what_is_no_plan_is_refused(tmp_path: Path) -> None:
    trained = Trained()
    path, text = tmp_path / "edited.mlir", trained.plan()
    assert refused(trained, path, VerifyError) == f"{path}: error: cannot be read: No such file or directory"
    assert (
        refused(trained, str(tmp_path), VerifyError) == f"{tmp_path}: error: cannot be read: Is a directory"
    )
    assert "got a text of several lines; write it to a file first" in refused(trained, text, BindError)
    for what in (3, b"edited.mlir"):
        expected = f"takes the path of a plan, a str or a PathLike, got {type(what).__name__}"
        assert expected in refused(trained, what, BindError)
    for content, expected in (
        (b"", "1:1: error: the text is empty"),
        (b"\xff\xfe", "1:1: error: byte 0xff is not UTF-8 text"),
        (b"PK\x03\x04\x00", "1:5: error: NUL character"),
        (b"plan.program @step", "1:19: error: Expected 'target'"),
        (b"builtin.module {\n}\n", "error: expected a module with one plan.program, got 0"),
        (changed(text, "plan.slot @x in", "plan.slot @x ?").encode(), "error: "),
        (trained.compiled().ir("kernel").encode(), "is not legal after stage 'plan'"),
    ):
        path.write_bytes(content)
        trained.anew()
        message = refused(trained, path, VerifyError)
        assert message.startswith(f"{path}:") and expected in message, message


def test_a_truncated_plan_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    trained = Trained()
    path, text = tmp_path / "edited.mlir", trained.plan()
    end = text.rindex("}", 0, text.rindex("}"))  # what is behind it says nothing more
    for length in [*range(0, end, 97), end]:
        path.write_text(text[:length])
        assert refused(trained, path, VerifyError).startswith(f"{path}:")


def test_a_choice_that_its_kernel_does_not_have_is_refused(tmp_path: Path) -> None:
    """Kernels take their launches when all is bound: the last moment, and not too late."""
    trained, path = Trained(), tmp_path / "edited.mlir"
    path.write_text(changed(trained.plan(), '_cpu_blas"', '_cpu_blas[fast]"'))
    trained.anew()
    assert "cannot choose [fast] for these operands; it can choose [" in refused(trained, path)


@pytest.mark.parametrize("edited", [False, True])
def test_parameters_move_behind_the_launches_of_a_file_alone(
    edited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own launches are never refused, and memory need not hold the parameters twice beside everything else."""
    trained, path = Trained(), tmp_path / "edited.mlir"
    path.write_text(trained.plan())
    trained.anew()
    before, found = trained.places(), list[bool]()
    executor = _C.Executor

    def counting(*arguments: Any) -> Any:
        found.append(trained.places() != before)
        return executor(*arguments)

    monkeypatch.setattr(_C, "Executor", counting)
    trained.compiled(**({"plan": path} if edited else {}))
    assert found == [not edited] and trained.places() != before


def test_a_plan_of_several_sizes_is_refused(tmp_path: Path) -> None:
    trained = Trained()
    path = tmp_path / "edited.mlir"
    path.write_text(trained.plan())
    message = refused(trained, path, BindError, further_sizes=1)
    assert message == "plan= and further_sizes=1: a plan is of one batch size; leave one of them out"
    message = refused(trained, path, BindError, example=[regression(5), regression(3)])
    assert message == "plan= is the plan of one batch size, and 2 are asked for; compile a step for each"


def test_more_memory_than_there_is(tmp_path: Path) -> None:
    trained = Trained()
    module = parse_module(trained.plan())
    program = find_program(module)
    arena = program.arenas["temp"]
    text = changed(str(module), f"@temp {arena.nbytes}", f"@temp {1 << 50}")
    total = (program.peak_bytes or 0) - arena.nbytes + (1 << 50)
    path = tmp_path / "edited.mlir"
    path.write_text(changed(text, f"peak {program.peak_bytes}", f"peak {total}"))
    assert "the plan needs 1,048,576.0 GiB of memory, this machine has" in refused(trained, path)


def on_module(edit: Callable[[ProgramOp], None]) -> Callable[[str], str]:
    """An edit of the plan without addresses."""

    def edited(_: str) -> str:
        module = parse_module(classes().plan("buffers"))
        before = str(module)
        edit(find_program(module))
        assert str(module) != before
        return str(module)

    return edited


def without(op: str) -> Callable[[str], str]:
    """The plan without the launch of an op."""
    return on_module(lambda program: launch_of(program, op).detach())


def launch_of(program: ProgramOp, op: str) -> LaunchOp:
    return next(launch for launch in program.launches if launch.op.data == op)


def with_a_rate_that_is_written(program: ProgramOp) -> None:
    program.body.block.add_op(
        LaunchOp("again", "copy_cpu", "copy", ["beta1"], ["lr"], {}, predicate="failed")
    )


def for_another_target(_: str) -> str:
    traced = trace(
        model := mlp_of_classes(),
        cross_entropy,
        classification(5),
        optimizer=torch.optim.Adam(model.parameters()),
    )
    run_stages(traced.module, make_context(), target="sm_90")
    return str(traced.module)


FOREIGN: dict[str, tuple[Callable[[str], str], str]] = {
    "a name": (
        lambda text: text.replace('param "2.bias"', 'param "bias"'),
        r"it lacks param '2.bias', f32\[4\]; it has param 'bias', f32\[4\], which the step does not have; ",
    ),
    "an input": (lambda text: text.replace('input "x"', 'input "image"'), r"lacks input 'x', f32\[5, 8\]"),
    "a host scalar": (
        lambda text: text.replace('host_scalar "lr"', 'host_scalar "rate"'),
        r"lacks host_scalar 'lr', f64\[\]",
    ),
    "a state": (lambda text: text.replace('state "step"', 'state "count"'), r"lacks state 'step', f32\[4\]"),
    "the status": (lambda text: text.replace('"failed"', '"wrong"'), r"lacks status 'failed', i64\[3\]"),
    "the loss": (lambda text: text.replace('"loss"', '"cost"'), r"lacks output 'loss', f32\[\]"),
    "another batch size": (
        lambda _: Trained(mlp_of_classes, loss_fn=cross_entropy, batch=classification(6)).plan(),
        r"input 'x': expected f32\[5, 8\], got f32\[6, 8\]; input 't': expected i64\[5\], got i64\[6\]",
    ),
    "another optimizer": (
        lambda _: Trained(
            mlp_of_classes, lambda m: torch.optim.SGD(m.parameters()), cross_entropy, classification(5)
        ).plan(),
        r"it lacks host_scalar 'beta1', f64\[\]; .* and \d+ more",
    ),
    "a check of other classes": (
        lambda text: text.replace("array<i64: 4>", "array<i64: 5>"),
        r"it lacks the check check_index of status 'failed', input 't' with classes = \[4\], .*has the check .*classes = \[5\]",
    ),
    "no update": (
        without("adam_step"),
        r"it does not update param '0.weight', which the step updates; it does not",
    ),
    "no counters": (without("advance"), r"it does not update state 'step', which the step updates"),
    "an update of a rate": (
        on_module(with_a_rate_that_is_written),
        r"it updates host_scalar 'lr', which the step leaves as it is",
    ),
    "another target": (for_another_target, r"the plan is for target sm_90, the step runs on cpu"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_plan_that_binds_something_else_is_refused(what: str, tmp_path: Path) -> None:
    edit, message = FOREIGN[what]
    trained, path = classes(), tmp_path / "edited.mlir"
    plan = trained.plan()
    path.write_text(edited := edit(plan))
    assert edited != plan
    error = refused(trained, path, BindError)
    assert re.match(rf"{re.escape(str(path))}:\d+:\d+: error: this is no plan of the step: ", error), error
    assert re.search(message, error), error
    assert 'write step.ir("plan") of this model, with these options and shapes, to a file' in error


def exhaustive(text: str) -> Iterator[str]:
    """Every launch dropped, repeated, exchanged with the next; every operand exchanged too, and replaced by one like it."""
    count = len(find_program(parse_module(text)).launches)
    for at in range(count):
        edits: list[Callable[[ProgramOp, LaunchOp], None]] = [drop, repeat, repeat_at_the_end, exchange]
        launch = find_program(parse_module(text)).launches[at]
        edits += [exchanged(i) for i in range(1, len(launch.reads))]
        edits += [replaced(i) for i in range(len(launch.reads))]
        for edit in edits:
            module = parse_module(text)
            program = find_program(module)
            edit(program, program.launches[at])
            yield str(module)


def drop(_: ProgramOp, launch: LaunchOp) -> None:
    launch.detach()


def repeat(program: ProgramOp, launch: LaunchOp) -> None:
    copy = launch.clone()
    copy.sym_name = StringAttr("again")
    program.body.block.insert_op_after(copy, launch)


def repeat_at_the_end(program: ProgramOp, launch: LaunchOp) -> None:
    copy = launch.clone()
    copy.sym_name = StringAttr("again")
    program.body.block.add_op(copy)


def exchange(program: ProgramOp, launch: LaunchOp) -> None:
    if isinstance(following := launch.next_op, LaunchOp):
        launch.detach()
        program.body.block.insert_op_after(launch, following)


def exchanged(i: int) -> Callable[[ProgramOp, LaunchOp], None]:
    """With the operand before it."""

    def edit(_: ProgramOp, launch: LaunchOp) -> None:
        names = launch.reads
        names[i - 1], names[i] = names[i], names[i - 1]
        launch.inputs = references(names)

    return edit


def replaced(i: int) -> Callable[[ProgramOp, LaunchOp], None]:
    """By the next slot of its type."""

    def edit(program: ProgramOp, launch: LaunchOp) -> None:
        names, slots = launch.reads, program.slots
        like = [name for name, slot in slots.items() if slot.type == slots[names[i]].type]
        names[i] = like[(like.index(names[i]) + 1) % len(like)]
        launch.inputs = references(names)

    return edit


@pytest.mark.parametrize("stage", ["plan", "buffers"])
def test_edits_of_dependencies_are_refused_or_told(stage: str, pytestconfig: pytest.Config) -> None:
    """With addresses most are refused; without, what is left runs as aicf-run runs it, and the certificate knows.

    Every second edit in a usual run.
    """
    trained = Trained(lambda: mlp(8, 9, 8), lambda m: torch.optim.SGD(m.parameters(), lr=0.1))
    text, expected = trained.plan(stage), after_two_steps(trained)
    counts: dict[str, int] = {}
    edits = [*exhaustive(text)][:: 1 if pytestconfig.getoption("campaign") else 2]
    for edited in edits:
        outcome = run_edit(trained, edited, expected)
        assert not outcome.startswith("fault"), f"{outcome}\n{edited}"
        counts[outcome] = counts.get(outcome, 0) + 1
    assert counts["refused"] > len(edits) / 4, counts
    assert stage == "plan" or min(counts["equal"], counts["differs"]) > len(edits) / 27, counts


def test_temporaries_that_lie_on_each_other_are_refused(tmp_path: Path) -> None:
    """Each temporary at the place of each other one: refused where both are alive, else as before."""
    trained = Trained(Gated)
    text, expected = trained.plan(), after_two_steps(trained)
    temporaries = [
        slot.symbol
        for slot in find_program(parse_module(text)).slots.values()
        if slot.role.data == "temp" and slot.alias is None
    ]
    outcomes: list[str] = []
    for name in temporaries:
        for other in temporaries:
            module = parse_module(text)
            slots = find_program(module).slots
            place = slots[other].place
            if place is None or place == slots[name].place:
                continue
            for slot in slots.values():
                if slot.root == name:
                    slot.set_place(*place)
            outcomes.append(run_edit(trained, str(module), expected))
    assert set(outcomes) <= {"refused", "equal"} and outcomes.count("refused") > 10, outcomes


def test_edits_by_chance_are_refused_or_told(pytestconfig: pytest.Config) -> None:
    count, first = int(pytestconfig.getoption("--mutants")) // 5, int(pytestconfig.getoption("--seed"))
    counts, faults = summary(run_all("edited", map(str, range(first, first + count))))
    assert not faults, "\n".join(faults)
    assert counts.get("equal", 0) + counts.get("differs", 0) > count / 10, counts

"""A comparison of replays with eager steps, byte by byte, under two poisons; it finds the first launch that differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from aicf_mlir.dialects.plan.hazards import Range
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.roles import UNDEFINED_ROLES
from aicf_mlir.runtime.certificate.report import Culprit, FailedCheck
from aicf_mlir.runtime.certificate.subject import Saved, SlotSpec, Subject, layout_of, place_of

EAGER_POISON, REPLAY_POISON = 0xFF, 0x41
"""The bytes NaN in every float type, and a plausible number in every type. A read of undefined memory sees two values."""


def check_replay(subject: Subject, start: Saved, steps: int) -> list[FailedCheck]:
    """Check that n replays at once equal n steps, and also one by one with hyperparameters that change before each step."""
    subject.restore(start)
    expected = [_step(subject, subject.run, EAGER_POISON) for _ in range(steps)]
    findings = _trace(subject, "the eager step")
    subject.restore(start)
    subject.poison(REPLAY_POISON)
    subject.replay(steps)
    findings += _trace(subject, "the replay")
    differs = subject.digest() != expected[-1]
    if subject.anywhere(differs):
        found = _difference(subject, start, steps, f"replay({steps})", perturbed=False)
        findings += [found] if differs else []  # another rank tells it

    subject.restore(start)
    expected = [_step(subject, subject.run, EAGER_POISON, i) for i in range(steps)]
    subject.restore(start)
    for i in range(steps):
        differs = _step(subject, subject.replay, REPLAY_POISON, i) != expected[i]
        if subject.anywhere(differs):
            what = f"replay {i + 1} of {steps}, with other hyperparameters at each,"
            found = _difference(subject, start, i + 1, what, perturbed=True)
            return [*findings, found] if differs else findings
    return findings


def _step(subject: Subject, run: Callable[[], None], poison: int, perturbed: int | None = None) -> bytes:
    """Run one step after poison; return the digest of the result."""
    if perturbed is not None:
        subject.perturb(perturbed)
    subject.poison(poison)
    run()
    return subject.digest()


def _trace(subject: Subject, what: str) -> list[FailedCheck]:
    """Check that the kernels of the last run are the planned ones."""
    planned = [launch["kernel_id"] for launch in subject.program.launches]
    ran = subject.executor.trace()
    for index, (wanted, got) in enumerate(zip(planned, ran, strict=False)):
        if wanted != got:
            message = f'{what} ran "{got}" where "{wanted}" is planned'
            return [FailedCheck("kernels", message, subject.culprit(index))]
    if len(planned) != len(ran):
        return [FailedCheck("kernels", f"{what} ran {len(ran)} kernels, {len(planned)} are planned")]
    return []


def _difference(subject: Subject, start: Saved, steps: int, what: str, *, perturbed: bool) -> FailedCheck:
    """Return the tensors that differ after `steps` steps, and the launch in the first step that shows it."""

    def advance(run: Callable[[], None], poison: int, count: int) -> None:
        subject.restore(start)
        for i in range(count):
            _step(subject, run, poison, i if perturbed else None)

    advance(subject.replay, REPLAY_POISON, steps)
    replayed = {name: subject.bytes_of(name) for name in subject.kept}
    advance(subject.run, EAGER_POISON, steps)
    names = [
        f"{slot.role} {slot.name!r}"
        for slot in subject.program.slots.values()
        if slot.role != "temp"
        and subject.arenas[slot.arena].read(slot.offset, slot.nbytes, subject.stream)
        != replayed[slot.arena][slot.offset : slot.offset + slot.nbytes]
    ]
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    message = f"{what} differs from eager steps in {shown or 'bytes between the slots, or only sometimes'}"
    for i in range(steps):
        advance(subject.run, EAGER_POISON, i)
        if perturbed:
            subject.perturb(i)
        if (culprit := first_difference(subject)) is not None:
            return FailedCheck("replay", message, culprit)
    return FailedCheck("replay", f"{message}; no part of the plan shows it when recorded anew")


def first_difference(subject: Subject) -> Culprit | None:
    """Return the first launch after which eager and replayed memory differ, from the current memory; None if none does.

    It is found by bisection: the launches up to a point are run and recorded by executors of their own.
    """
    before = subject.save()
    equal, differs = 0, len(subject.program.launches)
    if not _prefix_differs(subject, before, differs):
        return None
    while differs - equal > 1:
        middle = (equal + differs) // 2
        if _prefix_differs(subject, before, middle):
            differs = middle
        else:
            equal = middle
    return subject.culprit(differs - 1)


def _prefix_differs(subject: Subject, before: Saved, count: int) -> bool:
    eager, recorded = subject.first(count), subject.first(count)
    recorded.capture()
    seen: list[list[bytes]] = []
    for run, poison in (
        (lambda: eager.run(subject.stream), EAGER_POISON),
        (lambda: recorded.replay(1, subject.stream), REPLAY_POISON),
    ):
        subject.restore(before)
        subject.poison(poison)
        run()
        seen.append([_read(subject, span) for span in defined(subject, count)])
    return subject.anywhere(seen[0] != seen[1])


def _read(subject: Subject, span: Range) -> bytes:
    return subject.arenas[span.space].read(span.begin, span.end - span.begin, subject.stream)


def defined(subject: Subject, count: int) -> list[Range]:
    """Return the bytes that have a value after the first `count` launches."""
    lasting = [slot for slot in subject.program.slots.values() if slot.role not in UNDEFINED_ROLES]
    spans = [span for slot in lasting for span in _ranges(place_of(slot))]
    for launch in subject.program.launches[:count]:
        for span in (span for place in launch["outputs"] for span in _ranges(place)):
            spans = [*_without(spans, span), span]
        if (workspace := launch["workspace"]) is not None:
            arena, offset, nbytes = workspace
            spans = list(_without(spans, Range(arena, offset, offset + nbytes)))
    return sorted(set(spans))


def _ranges(place: SlotSpec) -> Iterator[Range]:
    """Yield the bytes of a tensor in contiguous ranges."""
    arena, offset, dtype = place[:3]
    size = byte_size(dtype, ())
    for begin, end in layout_of(place).spans():
        yield Range(arena, offset + begin * size, offset + end * size)


def _without(spans: list[Range], cut: Range) -> Iterator[Range]:
    for span in spans:
        if not span.overlaps(cut):
            yield span
            continue
        if span.begin < cut.begin:
            yield span._replace(end=cut.begin)
        if cut.end < span.end:
            yield span._replace(begin=cut.end)


def check_memory(subject: Subject, start: Saved) -> list[FailedCheck]:
    """Check that one step leaves every byte unchanged that no launch names as its output or workspace."""
    subject.restore(start)
    subject.poison(EAGER_POISON)
    before = {name: subject.bytes_of(name) for name in subject.arenas}
    subject.run()
    findings: list[FailedCheck] = []
    written = _written(subject)
    for name, old in before.items():
        new = subject.bytes_of(name)
        for begin, end in _gaps(written.get(name, ()), len(old)):
            if old[begin:end] != new[begin:end]:
                at = next(i for i in range(begin, end) if old[i] != new[i])
                message = f"a step changes byte {at} of @{name}, which no launch names as an output"
                culprit = _writer(subject, start, name, at) if subject.told is None else None
                findings.append(FailedCheck("memory", message, culprit))
                break
    return findings


def _writer(subject: Subject, start: Saved, arena: str, at: int) -> Culprit | None:
    """Return the first launch after which byte `at` of an arena has changed."""
    subject.restore(start)
    subject.poison(EAGER_POISON)
    old = subject.arenas[arena].read(at, 1, subject.stream)
    for index in range(len(subject.program.launches)):
        subject.alone(index).run(subject.stream)
        if subject.arenas[arena].read(at, 1, subject.stream) != old:
            return subject.culprit(index)
    return None


def _written(subject: Subject) -> Mapping[str, Sequence[Range]]:
    """Return the bytes of each arena that a launch of the plan's text writes, in order."""
    spans = {
        span for launch in subject.text.launches for place in launch["outputs"] for span in _ranges(place)
    }
    for launch in subject.text.launches:
        if (workspace := launch["workspace"]) is not None:
            space, offset, size = workspace
            spans.add(Range(space, offset, offset + size))
    return {space: list(found) for space, found in groupby(sorted(spans), key=lambda span: span.space)}


def _gaps(written: Sequence[Range], nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield the bytes of an arena that are not written."""
    end = 0
    for span in written:
        if span.begin > end:
            yield end, span.begin
        end = max(end, span.end)
    if end < nbytes:
        yield end, nbytes

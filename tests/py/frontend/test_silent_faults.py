"""Each fault that was silent once is found by `step.check` and by the certificate, and an honest step of its program is equal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from in_place_steps import TOLERANCE, Body, Writer, in_torch, state_of
from silent_faults import FAULTS, Batch, Fault, detached_results, unseen_writes, writer
from test_effects import EFFECTS
from test_written_tensors import PAIRS, written

from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.runtime.certificate import Certificate


def certified(step: Any, batch: Batch) -> Certificate:
    step.warmup(batch)
    return step.capture(batch, verify="bitwise")


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found_and_named(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.form(monkeypatch)
    fault.plant(monkeypatch)
    step, batch = fault.compiled()
    compared = step.check(batch)
    assert set(fault.named) <= {row.name for row in compared.differences}, str(compared)
    assert compared.layer == fault.layer, str(compared)
    certificate = certified(step, batch)
    (torchs,) = certificate.of("torch")
    assert torchs.message == compared.message
    references = [finding.message for finding in certificate.of("reference")]
    assert len(references) == (fault.elsewhere is not None), str(certificate)
    assert all(fault.elsewhere in message for message in references if fault.elsewhere), str(certificate)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_without_it_the_step_is_equal(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.form(monkeypatch)
    step, batch = fault.compiled()
    compared = step.check(batch, steps=2)
    assert compared.equal, str(compared)
    certificate = certified(step, batch)
    assert certificate.equal and certificate.uncompared is None, str(certificate)


def with_a_second_path(body: Body) -> Body:
    """So that no parameter loses all of its gradient: that is refused."""
    return lambda m, x, h: body(m, x, h) + m.two(x) * h


WRITES = {"-".join(pair): (with_a_second_path(written(*pair)), detached_results) for pair in PAIRS}
SWEPT = WRITES | {name: (body, unseen_writes) for name, body in EFFECTS.items()}


@pytest.mark.parametrize("name", SWEPT)
def test_exactly_what_is_wrong_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every program that writes into a tensor or has an effect: a step by hand says what is wrong."""
    body, plant = SWEPT[name]
    plant(monkeypatch)
    monkeypatch.setattr(ExportedStep, "expect_all", lambda step: None)
    step, batch = writer(body)
    compared = step.check(batch)
    got = state_of(step._request.model, step.train_step(batch))
    wanted = in_torch(Writer(body), batch, "train step")
    near = TOLERANCE[torch.float64]
    wrong = {name for name in wanted if not torch.allclose(got[name], wanted[name], rtol=near, atol=near)}
    assert {row.name.partition("'")[2].rstrip("'") or row.name for row in compared.differences} == wrong

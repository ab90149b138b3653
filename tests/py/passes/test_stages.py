"""The table of stages, as the API uses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.printing import to_text
from aicf_mlir.stages import STAGE_NAMES, STAGES, Snapshots, next_stage, run_stages, stage_range
from aicf_mlir.text.parsing import make_context, parse_module

STEP = (Path(__file__).parents[3] / "examples" / "train_step.mlir").read_text()


def run(**options: object) -> tuple[ModuleOp, Snapshots]:
    module, snapshots = parse_module(STEP), Snapshots()
    run_stages(module, make_context(), after_each=snapshots, **options)  # pyright: ignore[reportArgumentType]
    return module, snapshots


def test_every_stage_is_kept_and_printed_on_demand() -> None:
    module, snapshots = run(target="sm_90")
    assert tuple(snapshots) == STAGE_NAMES
    assert snapshots.text("plan") == to_text(module)
    assert "nn.cross_entropy" in snapshots.text("nn")
    assert "optim.adam" in snapshots.text("step")
    assert 'target "sm_90"' in snapshots.text("plan")


def test_snapshots_are_read_again() -> None:
    _, snapshots = run()
    for name in STAGE_NAMES:
        assert to_text(parse_module(snapshots.text(name))) == snapshots.text(name)


def test_stages_can_be_run_in_two_goes() -> None:
    whole, _ = run()
    module = parse_module(STEP)
    run_stages(module, make_context(), until="step")
    run_stages(module, make_context(), first="lowered")
    assert str(module) == str(whole)


def test_an_unknown_stage_is_named() -> None:
    with pytest.raises(ValueError, match="unknown stage 'kernels'; the stages are nn, grad, step"):
        run(until="kernels")
    with pytest.raises(KeyError, match="no stage 'plan' here; there are nn"):
        run(until="nn")[1]["plan"]


def test_passes_take_further_options() -> None:
    _, snapshots = run(options={"apply-optimizer": "keep-grads=true"}, until="step")
    assert 'aicf.role = "grad"' in snapshots.text("step")
    assert 'aicf.role = "grad"' not in run(until="step")[1].text("step")


def test_what_a_stage_must_not_leave_is_refused() -> None:
    module = parse_module('"test.op"() : () -> ()')
    with pytest.raises(VerifyException, match=r"'test\.op' is not legal after stage 'nn'"):
        run_stages(module, make_context(), until="nn")


def test_the_next_stage_follows_from_the_level() -> None:
    _, snapshots = run()
    expected = ["lowered"] * 3 + ["kernel"] * 3 + ["plan", None]
    assert [next_stage(snapshots[name]) for name in STAGE_NAMES] == expected


def test_ranges() -> None:
    assert stage_range("plan") == STAGES
    assert [stage.name for stage in stage_range("fused", "lowered")] == ["lowered", "fused"]

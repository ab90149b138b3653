"""Plans that a user has edited, under live models: what is harmless trains the same bits, what is wrong is told or refused."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from edited_plans import Trained, adam, mlp_of_classes
from models import classification, cross_entropy, mlp, mse, regression, values
from oracle import assert_all_right, assert_same_bits
from plan_edits import other_kernels, other_order, other_places
from torch import nn

from aicf_mlir import AicfError
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.passes.plan_memory import plan
from aicf_mlir.runtime.certificate import Certificate
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.text.parsing import parse_module


def stored(folder: Path, text: str, name: str = "edited.mlir") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def changed(text: str, old: str, new: str, count: int = 1) -> str:
    assert text.count(old) >= count, f"{old!r} is not in\n{text}"
    return text.replace(old, new, count)


def history(trained: Trained, step: CompiledTrainStep) -> list[dict[str, torch.Tensor]]:
    """What two eager steps and three replays make, one after the other."""
    seen: list[dict[str, torch.Tensor]] = []
    for number in range(5):
        if number == 2:
            step.capture(trained.batch)
        loss = step.train_step(trained.batch) if number < 2 else step.replay()
        seen.append({**trained.values(), "loss": loss.cpu().clone()})
    return seen


def certified(trained: Trained, step: CompiledTrainStep) -> Certificate:
    """The certificate of a step, which may be captured already."""
    step.reset()
    step.warmup(trained.batch)
    return step.capture(trained.batch, verify="bitwise", steps=2)


class Noisy(nn.Module):
    """Dropout, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.4), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def told(model: Any, batch: Mapping[str, torch.Tensor]) -> Any:
    y = model(batch["x"])
    return nn.functional.mse_loss(y, batch["t"]), {"worst": (y - batch["t"]).abs().max()}


OPTIONS: dict[str, Callable[[str], Trained]] = {
    "plain": lambda device: Trained(device=device),
    "sgd": lambda device: Trained(
        optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), device=device
    ),
    "traced optimizer": lambda device: Trained(
        optimizer=lambda m: torch.optim.RAdam(m.parameters(), lr=0.01), device=device
    ),
    "classes": lambda device: Trained(
        mlp_of_classes, loss_fn=cross_entropy, batch=classification(5), device=device
    ),
    "random numbers and statistics": lambda device: Trained(Noisy, device=device, options={"seed": 3}),
    "outputs and metrics": lambda device: Trained(
        loss_fn=told, device=device, options={"metrics": {"worst": "max"}}
    ),
    "clipping": lambda device: Trained(
        device=device, options={"clip_grad_norm": 0.1, "keep_gradients": True, "check_finite": True}
    ),
    "scaling": lambda device: Trained(device=device, options={"loss_scale": "dynamic", "ema": 0.9}),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_the_own_plan_from_a_file_is_the_same_step(what: str, device: str, tmp_path: Path) -> None:
    trained = OPTIONS[what](device)
    text = trained.compiled().ir("plan")
    trained.anew()
    expected = history(trained, trained.compiled())
    trained.anew()
    step = trained.compiled(plan=stored(tmp_path, text))
    assert step.ir("plan") == text
    for ours, theirs in zip(history(trained, step), expected, strict=True):
        assert_same_bits(ours, theirs)
    certificate = certified(trained, step)
    assert certificate.equal, str(certificate)
    if what == "outputs and metrics":
        assert step.metrics()["worst"] >= step.outputs["worst"]
    if what == "scaling":
        assert step.skipped == 0 and set(step.ema) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_micro_batches(tmp_path: Path) -> None:
    trained = Trained()
    parts = [regression(5, seed=seed) for seed in (1, 2)]
    own = trained.compiled(accumulate=2)
    for _ in range(3):
        own.train_step(parts)
    expected, text = trained.values(), own.ir("plan")
    trained.anew()
    step = trained.compiled(accumulate=2, plan=stored(tmp_path, text))
    for _ in range(3):
        step.train_step(parts)
    assert_same_bits(trained.values(), expected)


def elu_of(alpha: float) -> Callable[[], nn.Module]:
    """A perceptron whose activation has a number."""

    def made() -> nn.Module:
        model = mlp(8, 17, 8)
        model[1] = nn.ELU(alpha)
        return model

    return made


def test_edits_that_compute_the_same_train_as_torch(device: str, tmp_path: Path) -> None:
    """Other kernels, another order, other addresses at once, and a rate that changes on the way.

    With gradients that are kept a GPU too has launches that can be exchanged, and some of the registry.
    """
    trained = Trained(device=device, options={"keep_gradients": True})
    module = parse_module(trained.plan("buffers"))
    assert other_order(module) > 0
    plan(find_program(module))
    other_places(module)
    assert other_kernels(module) > 0
    runs: list[dict[str, torch.Tensor]] = []
    for dtype in (torch.float32, torch.float64):
        twin = trained.make().to(device, dtype)
        optimizer = adam(twin)
        for number in range(8):
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + number)
            optimizer.zero_grad()
            mse(twin, {name: tensor.to(dtype) for name, tensor in trained.batch.items()}).backward()
            optimizer.step()
        runs.append(values(twin, optimizer))
    step = trained.compiled(plan=stored(tmp_path, str(module)))
    for number in range(8):
        trained.trained_by.param_groups[0]["lr"] = 0.01 / (1 + number)
        if number == 4:
            certificate = certified(trained, step)
            assert certificate.equal, str(certificate)
            assert "the order of launches" in certificate.to_json()
        step.train_step(trained.batch) if number < 4 else step.replay()
    assert step.executed_kernels() == step.planned_kernels() != trained.compiled().planned_kernels()
    assert_all_right(trained.values(), *runs)


def written_as_told(trained: Trained, folder: Path, text: str) -> str:
    """`text` with the kernel ids that the errors say, one after the other."""
    for _ in range(10):
        try:
            trained.compiled(plan=stored(folder, text))
        except AicfError as error:
            found = re.search(
                r"edited.mlir:\d+:5: error: .*'(gen_\w+)' is not the kernel of .* '(gen_\w+)' on", str(error)
            )
            assert found is not None, str(error)
            text = text.replace(found[1], found[2])
        else:
            trained.anew()
            return text
    raise AssertionError("the errors do not end")


def test_an_edited_body_is_trained_as_it_says_and_differs_from_the_model(device: str, tmp_path: Path) -> None:
    trained, other = (Trained(elu_of(alpha), device=device) for alpha in (0.5, 0.75))
    edited = trained.plan().replace("5.000000e-01", "7.500000e-01")
    named = written_as_told(trained, tmp_path, edited)
    step = trained.compiled(plan=stored(tmp_path, re.sub(r'"gen_\w+"', '""', edited)))
    assert step.ir("plan") == named  # an id that is left out is filled in
    for ours, theirs in zip(history(trained, step), history(other, other.compiled()), strict=True):
        assert_same_bits(ours, theirs)
    certificate = certified(trained, step)
    finding, beside_torch = certificate.findings
    assert beside_torch.check == "torch" and "step 1 is not what torch does" in beside_torch.message
    assert finding.check == "reference" and "is not what the model says: output 'loss'" in finding.message
    assert "the plan is that of" in finding.message and finding.culprit is not None
    assert re.search(r"edited.mlir:\d+$", finding.culprit.source), finding.culprit


def test_what_a_batch_does_not_show_differs_all_the_same(tmp_path: Path) -> None:
    trained = OPTIONS["classes"]("cpu")
    text = trained.plan()
    step = trained.compiled(
        plan=stored(tmp_path, changed(text, "ignore_index = -100, label", "ignore_index = -7, label", 2))
    )
    step.train_step(trained.batch)
    (finding,) = certified(trained, step).findings
    assert finding.message.startswith(
        "with these values the step is what the model says, but not by its formulas"
    )
    assert "param '0.weight'" in finding.message and finding.culprit is not None
    assert finding.culprit.op == "cross_entropy"


def test_a_plan_that_trains_otherwise_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Such as the plan of a model whose activation has been replaced since: nobody sees a log below warnings by default."""
    trained = Trained(lambda: mlp(8, 17, 8))
    path = stored(tmp_path, changed(trained.plan(), 'act = "relu"', 'act = "tanh"'))
    trained.compiled(plan=path)
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "and computes by other formulas param '0.weight'" in record.getMessage()


def test_it_is_told_where_the_plan_comes_from(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained = Trained()
    text = changed(trained.plan(), "gemm_epilogue_cpu_blas", "gemm_epilogue_cpu_plain")
    path = stored(tmp_path, text)
    with caplog.at_level(logging.INFO, "aicf"):
        step = trained.compiled(plan=path)
    launch = re.search(r'@(k\d+) "gemm_epilogue_cpu_plain"', text)
    assert launch is not None
    sentence = f"it differs from the step's own in launch @{launch[1]}, and computes the same"
    assert f"step: the plan is that of {path} (sha256 " in caplog.text and sentence in caplog.text
    guard = step.guards()[-1]
    assert (guard.path, guard.kind) == ("plan", "file") and guard.value.startswith(f"{path} (")
    assert step.describe().startswith(f"the plan is that of {path}") and sentence in step.describe()
    assert sentence in json.loads(step.describe(json=True))["plan"]
    assert step.ir("kernel").startswith(f"// of the model; the plan is that of {path}")
    parse_module(step.ir("kernel"))
    assert step.ir("plan") == text
    step.train_step(trained.batch)
    certificate = step.capture(trained.batch, verify="bitwise", steps=1)
    assert sentence in str(certificate).splitlines()[1]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    own = trained.compiled()
    assert not any(guard.path == "plan" for guard in own.guards()) and own.ir("kernel")[0] != "/"
    assert "plan" not in json.loads(own.describe(json=True))


def test_launches_keep_the_lines_of_the_model_where_they_compute_what_they_did(tmp_path: Path) -> None:
    trained = OPTIONS["classes"]("cpu")
    text = trained.plan()
    own = {row["launch"]: row["source"] for row in launches(trained.compiled())}
    trained.anew()
    edited = changed(text, "gemm_epilogue_cpu_blas", "gemm_epilogue_cpu_plain")
    edited = changed(edited, "label_smoothing = 0.0", "label_smoothing = 0.1")
    lines = edited.splitlines()
    for row in launches(trained.compiled(plan=stored(tmp_path, edited))):
        (source, *_), was = row["source"] or [{}], own[row["launch"]]
        if row["attributes"].get("label_smoothing") == 0.1:
            at = next(i for i, line in enumerate(lines, 1) if f"plan.launch {row['launch']} " in line)
            assert (source["line"], Path(source["file"]).name) == (at, "edited.mlir")
        else:
            assert row["source"] == was


def launches(step: CompiledTrainStep) -> list[dict[str, Any]]:
    return json.loads(step.describe(json=True))["launches"]


def test_a_plan_without_addresses_gets_them(tmp_path: Path) -> None:
    trained = Trained()
    buffers, text = trained.plan("buffers"), trained.plan()
    step = trained.compiled(plan=stored(tmp_path, buffers))
    assert step.ir("plan") == text
    trained.anew()
    unordered = re.sub(r"\s+after (@\w+(, )?)+", "", buffers)
    assert "after" in buffers and "after" not in unordered
    step = trained.compiled(plan=stored(tmp_path, unordered))
    assert step.ir("plan") == text


def test_parts_that_are_written_in_another_order_are_the_same(tmp_path: Path) -> None:
    """Launches that write two parts of one slot, exchanged: the formula of the whole is what it was."""
    trained = Trained(lambda: Halves())
    module = parse_module(trained.plan("buffers"))
    assert "strided" in str(module) and other_order(module)
    step = trained.compiled(plan=stored(tmp_path, str(module)))
    step.train_step(trained.batch)
    certificate = certified(trained, step)
    assert certificate.equal and certificate.plan is not None and "and computes the same" in certificate.plan


class Halves(nn.Module):
    """Two products that are joined."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([self.left(x).tanh(), self.right(x)], -1))

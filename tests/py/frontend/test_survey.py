"""`survey` and `aicf-trace --survey`: everything that cannot be compiled at once, where `trace` stops at the first."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from test_frontend_errors import LOSSES, REFUSED, Net, batch
from torch import nn

import aicf_mlir
from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.advice import advice_for
from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.frontend.surveying import INCOMPLETE, Survey
from aicf_mlir.tools.aicf_trace import main


class Many(nn.Module):
    mean: torch.Tensor

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.FractionalMaxPool2d(2, 8), nn.ReLU(), nn.FractionalMaxPool2d(2, 2), nn.Conv2d(3, 3, 1)
        )
        self.head = nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.features(x)
        self.mean.mul_(0.9).add_(h.detach().erfinv().mean())
        if h.sum() > 0:
            h = h * h.sum().item()
        h = h.hypot(h) + torch.special.log_ndtr(h) + h.hypot(h)
        return self.head(torch.special.i1e(h) * 2)


POOL = "aten.fractional_max_pool2d.default"
"""An op that is taken out of the table here, for torch's layers have few others that are missing."""


def images() -> dict[str, torch.Tensor]:
    return {"x": torch.zeros(2, 3, 12, 12)}


def loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return model(batch["x"])


def rows(found: Survey) -> list[tuple[str, int, str, str]]:
    """What, how often, in which layer, and the text of the line."""
    lines = Path(__file__).read_text().splitlines()
    texts: dict[Any, str] = {
        f: "" if f.location is None else lines[f.location.line - 1] for f in found.findings
    }
    return [(f.what, count, f.layer, texts[f].strip()) for f, count in found.findings.items()]


def test_everything_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TABLE, POOL)
    model = Many()
    optimizer = torch.optim.LBFGS(model.parameters())
    found = aicf_mlir.survey(model, loss, images(), optimizer=optimizer)
    three = "h = h.hypot(h) + torch.special.log_ndtr(h) + h.hypot(h)"
    assert rows(found) == [
        ("optimizer", 1, "", "found = aicf_mlir.survey(model, loss, images(), optimizer=optimizer)"),
        ("code", 1, "", "if h.sum() > 0:"),
        ("code", 1, "", "h = h * h.sum().item()"),
        ("loss", 1, "", "def loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:"),
        ("aten.fractional_max_pool2d.default", 1, "features.0: FractionalMaxPool2d", "h = self.features(x)"),
        ("aten.fractional_max_pool2d.default", 1, "features.2: FractionalMaxPool2d", "h = self.features(x)"),
        ("aten.erfinv.default", 1, "Many", "self.mean.mul_(0.9).add_(h.detach().erfinv().mean())"),
        ("aten.hypot.default", 2, "Many", three),
        ("aten.special_log_ndtr.default", 1, "Many", three),
        ("aten.special_i1e.default", 1, "Many", "return self.head(torch.special.i1e(h) * 2)"),
    ]
    assert found.complete and not found.supported
    by_name = {finding.what: finding for finding in found.findings}
    names = ("fractional_max_pool2d", "hypot", "special_log_ndtr")
    pool, hypot, ndtr = (by_name[f"aten.{name}.default"] for name in names)
    assert (pool.reason, pool.instead) == ("there is no such op here yet", "")
    assert pool.operands == "float32[2, 3, 8, 8], float32[2, 3, 2]"
    assert (hypot.reason, hypot.instead) == ("there is no such op here yet", advice_for("aten.hypot.default"))
    assert ndtr.reason == "torch decomposes it into aten.special_erfcx.default, which is not supported either"
    assert ndtr.instead == ""


class Hypotenuse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.hypot(x, x)


def test_the_table() -> None:
    text = str(aicf_mlir.survey(nn.Sequential(Hypotenuse(), nn.ReLU()), loss, {"x": torch.zeros(2, 4, 3)}))
    table, said = text.split("\n\n")
    assert table.splitlines()[0].split() == ["count", "what", "layer", "line"]
    assert table.splitlines()[1].split()[:2] == ["1", "loss"]
    assert table.splitlines()[2].split()[:4] == ["1", "aten.hypot.default", "0:", "Hypotenuse"]
    assert __file__ in table.splitlines()[2]
    assert said.splitlines()[0].startswith(
        "loss: the loss must be a 0-d float tensor, got float32[2, 4, 3]; reduce it"
    )
    assert said.splitlines()[1].startswith("aten.hypot.default: there is no such op")
    assert said.splitlines()[2] == f"  write instead: {advice_for('aten.hypot.default')}"


def test_a_step_without_findings() -> None:
    model = nn.Linear(4, 4)
    found = aicf_mlir.survey(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), B=2, D=4)
    assert (found.supported, found.complete, len(found.findings)) == (True, True, 0)
    assert str(found) == "everything in this step is supported"


@pytest.mark.parametrize("name", REFUSED)
def test_what_trace_refuses_is_found(name: str) -> None:
    model = Net(REFUSED[name][0])
    with pytest.raises(TraceError) as refused:
        aicf_mlir.trace(model, None, batch())
    found = aicf_mlir.survey(model, None, batch())
    assert refused.value.location is not None
    assert refused.value.location.file_and_line in [finding.place for finding in found.findings]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_trace_refuses_are_found(name: str) -> None:
    function, changed, _ = LOSSES[name]
    model = Net(lambda m, h: h)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TraceError) as refused:
        aicf_mlir.trace(model, function, batch(**changed), optimizer=optimizer)
    found = aicf_mlir.survey(model, function, batch(**changed), optimizer=optimizer)
    assert refused.value.reason in [finding.reason for finding in found.findings]


def test_parts_that_are_refused_as_a_whole() -> None:
    hooked = nn.Linear(4, 4)
    hooked.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    stranger = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = aicf_mlir.survey(hooked, optimizer=stranger, B=2, D=4)
    assert [finding.what for finding in found.findings] == ["autocast", "hooks", "optimizer"]
    assert found.complete

    found = aicf_mlir.survey(hooked, None, {"x": [1.0]})  # pyright: ignore[reportArgumentType]
    assert [finding.what for finding in found.findings] == ["hooks", "step"]
    assert not found.complete

    found = aicf_mlir.survey(nn.Linear(4, 4), None, batch(), B=2, D=4)
    assert [finding.reason for finding in found.findings] == [
        "give the shapes once: either example=, or B= and D="
    ]


def until_it_is_small(h: torch.Tensor) -> torch.Tensor:
    while h.norm() > 1:
        h = h * 0.5
    return h.i0()


def a_layer_by_number(h: torch.Tensor) -> torch.Tensor:
    return [h.i0()][int(h.sum())]


ENDED: dict[str, tuple[Callable[[torch.Tensor], Any], list[str]]] = {
    "a loop whose end is made up": (until_it_is_small, ["while h.norm() > 1:"]),
    "an error that a made-up index leads to": (a_layer_by_number, ["return [h.i0()][int(h.sum())]"]),
    "an error of the code": (lambda h: h @ torch.zeros(3, 3), ['"an error of the code"']),
}


@pytest.mark.parametrize("name", ENDED)
def test_a_trace_that_ends_is_said_to_end(name: str) -> None:
    function, expected = ENDED[name]
    found = aicf_mlir.survey(Net(lambda m, h: function(h)), None, batch())
    assert [what for what, _, _, _ in rows(found)] == ["code"]
    assert [
        text for (_, _, _, line), text in zip(rows(found), expected, strict=True) if text in line
    ] == expected
    assert not found.complete
    assert str(found).endswith(f"\n\n{INCOMPLETE}")


def values_in_python(h: torch.Tensor) -> torch.Tensor:
    number = h.sum().item() + float(h.sum()) + int(h.sum())
    text = f"{h.mean():.2f}"
    rows = h.tolist()
    same = torch.equal(input=h, other=h) and torch.allclose(h, h) and (3.0 in h)
    return h.i0() * number * len(text) * rows[0][0] * same


def test_values_are_made_up_where_the_code_reads_them() -> None:
    found = aicf_mlir.survey(Net(lambda m, h: values_in_python(h)), None, batch())
    first = inspect.getsourcelines(values_in_python)[1]
    lines = [(f.what, f.location.line - first) for f in found.findings if f.location is not None]
    assert lines == [*(("code", line) for line in (1, 2, 3, 4, 4)), ("aten.i0.default", 5)]
    assert found.complete


def test_complex_ops_without_a_rule_are_found_beside_others() -> None:
    def of_h(h: torch.Tensor) -> torch.Tensor:
        z = torch.view_as_complex(h.reshape(2, 2, 2)).acosh()
        return (z.exp().asin() * z).abs().i0()

    found = aicf_mlir.survey(
        Net(lambda m, h: of_h(h)), None, {"x": torch.zeros(2, 4), "t": torch.zeros(2, 2)}
    )
    names = ["aten.acosh.default", "aten.asin.default", "aten.i0.default"]
    assert [finding.what for finding in found.findings] == names
    assert found.complete and next(iter(found.findings)).reason == "aten.acosh.default of complex numbers"


def test_an_op_that_checks_values_hides_nothing() -> None:
    found = aicf_mlir.survey(Net(lambda m, h: torch.linalg.lu_factor(h @ h.t())[0].i0() @ h), None, batch())
    assert [finding.what for finding in found.findings] == [
        "aten.linalg_lu_factor.default",
        "aten.i0.default",
    ]
    assert found.complete


def test_nothing_changes() -> None:
    model = Many()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model(images()["x"])
    model(images()["x"]).sum().backward()
    optimizer.step()
    tensors = [*model.state_dict().values(), *(p.grad for p in model.parameters() if p.grad is not None)]
    tensors += [t for state in optimizer.state.values() for t in state.values()]
    before = [(t, t.data_ptr(), t.clone()) for t in tensors]
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    random, groups = torch.get_rng_state(), str(optimizer.state_dict())
    assert not aicf_mlir.survey(model, loss, images(), optimizer=optimizer).supported
    assert all(t.data_ptr() == place and torch.equal(t, value) for t, place, value in before)
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == attributes
    assert torch.equal(torch.get_rng_state(), random)
    assert str(optimizer.state_dict()) == groups


USER = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.scale = nn.FractionalMaxPool2d(2, 2), nn.Parameter(torch.ones(()))
    def forward(self, x):
        return self.pool(x * self.scale).erfinv()
def step():
    x = torch.zeros(3, 2, 4, 4)
    return {"model": Net(), "batch": {"x": x, "t": x[..., :2, :2]}}
"""


def test_the_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(TABLE, POOL)
    file = tmp_path / "user.py"
    file.write_text(USER)
    assert main(["--survey", f"{file}:step"]) == 1
    text, errors = capsys.readouterr()
    assert errors == ""
    assert [line.split() for line in text.splitlines()[:3]] == [
        ["count", "what", "layer", "line"],
        ["1", "aten.fractional_max_pool2d.default", "pool:", "FractionalMaxPool2d", f"{file}:8"],
        ["1", "aten.erfinv.default", "Net", f"{file}:8"],
    ]
    assert main([f"{file}:step", "--survey=text", "-o", str(tmp_path / "found.txt")]) == 1
    assert (tmp_path / "found.txt").read_text() == text

    capsys.readouterr()
    assert main([f"{file}:step", "--survey=json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["supported"], found["complete"]) == (1, False, True)
    assert found["findings"][0] == {
        "what": "aten.fractional_max_pool2d.default",
        "count": 1,
        "operands": "float32[3, 2, 4, 4], float32[3, 2, 2]",
        "file": str(file),
        "line": 8,
        "layer": "pool: FractionalMaxPool2d",
        "reason": "there is no such op here yet",
        "instead": "",
    }


def test_the_tool_on_a_step_that_can_be_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[3] / "examples" / "mlp.py"
    assert main(["--survey", f"{example}:mlp"]) == 0
    assert capsys.readouterr() == ("everything in this step is supported\n", "")
    assert main(["--survey=json", f"{example}:mlp"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_the_tool_on_a_file_that_builds_no_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--survey", "nowhere.py:step"]) == 1
    assert capsys.readouterr() == ("", "aicf-trace: error: nowhere.py: there is no such file\n")

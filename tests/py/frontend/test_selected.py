"""Elements under a mask: the values and gradients that torch has, for every mask; what has no rule is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from costs import Some
from selected_cases import IN_MEMORY, REFUSED, WORKS, Batch, Loss
from torch import Tensor, nn

from aicf_mlir import DataError, TraceError, compile_train_step
from aicf_mlir.frontend.selected import Selected
from aicf_mlir.frontend.selected_rules import DIMENSION

WEIGHTS = torch.linspace(0.5, 1.5, len(WORKS))
"""Of the cases in the loss: no two gradients can be exchanged."""


def batch(seed: int, dtype: torch.dtype = torch.float64) -> Batch:
    torch.manual_seed(seed)
    rows = torch.rand(6) > 0.4
    rows[seed % 6], rows[(seed + 1) % 6] = True, False
    return {
        "x": torch.randn(6, 5, dtype=dtype),
        "t": torch.randn(6, 4, dtype=dtype),
        "m": torch.rand(6, 4) > 0.4,
        "r": rows,
        "y": torch.tensor([0, 1, 2, 3, 1, 2])[torch.randperm(6)],
    }


def of_these(cases: Sequence[int], model: nn.Module, b: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    p = model(b["x"])
    works = [*WORKS.values()]
    values = {f"v{number}": works[number](p, b) for number in cases}
    loss = sum(WEIGHTS[number].item() * values[f"v{number}"] for number in cases)
    assert isinstance(loss, Tensor)
    return loss, {name: value.detach() for name, value in values.items()}


def model_of(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(5, 4, dtype=dtype)


def test_all_cases_are_torchs_whatever_the_mask_is(some: Some) -> None:
    cases = some(range(len(WORKS)))

    def of_all(model: nn.Module, b: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return of_these(cases, model, b)

    model, twin = model_of(torch.float64), model_of(torch.float64)
    optimizer, eager = (torch.optim.SGD(each.parameters(), 1e-3) for each in (model, twin))
    step = compile_train_step(model, optimizer, device="cpu", example=batch(0), loss_fn=of_all)
    for seed in range(4):
        given = batch(seed)
        loss, expected = of_all(twin, given)
        eager.zero_grad()
        loss.backward()
        eager.step()
        found = step.train_step(given)
        got = step.outputs
        for number in cases:
            name = [*WORKS][number]
            torch.testing.assert_close(
                got[f"v{number}"], expected[f"v{number}"], msg=lambda text, name=name: f"{name}: {text}"
            )
        torch.testing.assert_close(found, loss.detach())
        for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)


def step_of(loss: Loss, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Any]:
    model = model_of(dtype)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    return model, compile_train_step(
        model, optimizer, device="cpu", example=batch(0, dtype), loss_fn=lambda m, b: loss(m(b["x"]), b)
    )


@pytest.mark.parametrize("loss", IN_MEMORY)
def test_views_of_selected_rows_share_their_memory(loss: Loss) -> None:
    model, step = step_of(loss)
    for seed in range(3):
        twin, given = model_of(torch.float64), batch(seed)
        twin.load_state_dict(model.state_dict())
        expected = loss(twin(given["x"]), given)
        expected.backward()
        torch.testing.assert_close(step.train_step(given), expected.detach())
        for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            assert theirs.grad is not None
            torch.testing.assert_close(ours, theirs - theirs.grad)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused(name: str) -> None:
    loss, text = REFUSED[name]
    with pytest.raises(TraceError, match=text):
        step_of(loss)


@pytest.mark.parametrize("name", sorted(DIMENSION.keys() - {"normalize"}))
def test_dimensions_are_arguments_where_torch_has_them(name: str) -> None:
    place, default = DIMENSION[name]
    packet = getattr(torch.ops.aten, name)
    found: set[tuple[int, int | None]] = set()
    for overload in packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        for at, argument in enumerate(arguments):
            if (
                argument.name in ("dim", "dims")
                and not argument.kwarg_only
                and "str" not in str(argument.type)
            ):
                known = argument.default_value if isinstance(argument.default_value, int) else None
                found.add((at, known))
    assert (place, default) in found
    assert {at for at, _ in found} == {place}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_16_bits_are_summed_in_32(dtype: torch.dtype) -> None:
    def loss(p: Tensor, b: Batch) -> Tensor:
        return F.mse_loss(p[b["m"]], b["t"][b["m"]]) + p[b["r"]].std()

    model, step = step_of(loss, dtype)
    given = batch(0, dtype)
    wide = loss(model(given["x"]).double(), {**given, "t": given["t"].double()})
    assert step.train_step(given).item() == pytest.approx(wide.item(), rel=4 * torch.finfo(dtype).eps)


def test_an_empty_selection_is_as_in_torch() -> None:
    def loss(p: Tensor, b: Batch) -> Tensor:
        return p[b["m"]].sum() + p[b["r"]].mean()

    _, step = step_of(loss)
    assert step.train_step({**batch(0), "m": torch.zeros(6, 4, dtype=torch.bool)}).isfinite()
    assert step.train_step({**batch(0), "r": torch.zeros(6, dtype=torch.bool)}).isnan()


def test_the_largest_of_none_skips_the_step() -> None:
    model, step = step_of(lambda p, b: p[b["m"]].max())
    before = [each.detach().clone() for each in model.parameters()]
    with pytest.raises(DataError, match="no element is under the mask"):
        step.train_step({**batch(0), "m": torch.zeros(6, 4, dtype=torch.bool)})
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize(
    ("case", "mask"), [(WORKS["only if any"], "m"), (WORKS["many or few"], "r")], ids=["any", "len"]
)
def test_a_branch_that_takes_its_other_side_skips_the_step(case: Loss, mask: str) -> None:
    model, step = step_of(case)
    step.train_step(batch(0))
    before = [each.detach().clone() for each in model.parameters()]
    with pytest.raises(DataError, match="on the number of elements under a mask takes its other side"):
        step.train_step({**batch(0), mask: torch.zeros_like(batch(0)[mask])})
    assert all(map(torch.equal, before, model.parameters()))
    step.train_step(batch(1))


def test_what_torch_calls_by_itself_is_refused() -> None:
    chosen = Selected.of(torch.ones(3), torch.ones(3, dtype=torch.bool), "key")
    with pytest.raises(TraceError, match="which torch calls by itself"):
        chosen.add(1)

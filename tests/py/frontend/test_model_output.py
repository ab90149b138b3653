"""What a model returns, found without a graph: nothing runs, nothing changes, and refusals are those of an export."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import TensorSpec
from aicf_mlir.frontend.export import export, result_of

X = {"x": TensorSpec((8, 4), torch.float32, torch.device("cpu"))}


class Restless(torch.nn.Module):
    """Changes itself in its forward in ways that a trace must not leave behind."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("mean", torch.ones(3))
        self.last: object = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.mean: torch.Tensor = self.mean * 0.5
        self.mean.add_(y.mean(0))
        self.last = y
        return y - self.mean


def test_asking_for_the_output_of_a_model_changes_nothing() -> None:
    model = Restless()
    before = {name: (value, value.clone(), value._version) for name, value in model.state_dict().items()}
    seed = torch.get_rng_state()
    output = result_of(model, lambda model, batch: model(batch["x"]), X, None)
    assert (tuple(output.shape), output.dtype, output.device.type) == ((8, 3), torch.float32, "cpu")
    assert "last" in vars(model)
    assert vars(model)["last"] is None
    assert torch.equal(seed, torch.get_rng_state())
    for name, value in model.state_dict().items():
        old, copy, version = before[name]
        assert value.data_ptr() == old.data_ptr()
        assert value._version == version
        assert torch.equal(value, copy)


def test_a_model_without_an_output_is_refused_as_an_export_refuses_it() -> None:
    model = torch.nn.Linear(4, 3)

    def a_number(model: torch.nn.Module, batch: Any) -> Any:
        return model(batch["x"]).sum().item()

    with pytest.raises(TraceError) as refused:
        result_of(model, a_number, X, None)
    with pytest.raises(TraceError) as exported:
        export(model, a_number, X, None)
    assert str(refused.value) == str(exported.value)

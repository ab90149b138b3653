"""Rows of few elements on the CPU are maps: the reductions are the same, of each kind, type and layout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from programs import run_pipeline
from torch import Tensor, nn

from aicf_mlir import compile_eval_step
from aicf_mlir.interpreters import run_function
from aicf_mlir.text.parsing import parse_module

ROWS = 1000


def launches(text: str, target: str = "cpu") -> list[str]:
    module = run_pipeline(parse_module(text), f'fuse{{target="{target}"}},dce')
    return [op.name for op in module.walk() if op.name.startswith("kernel.") and op.name != "kernel.view"]


def total(shape: str, result: str, dims: str) -> str:
    kinds = f"tensor<{shape}>", f"tensor<{result}>"
    return (
        f"func.func @f(%x: {kinds[0]}) -> {kinds[1]} {{\n"
        f"  %y = kernel.reduce_sum x(%x) {{dims = array<i64: {dims}>}} : ({kinds[0]}) -> {kinds[1]}\n"
        f"  func.return %y : {kinds[1]}\n}}"
    )


@pytest.mark.parametrize(
    "text, launch",
    [
        (total("1000x3xf32", "1000xf32", "1"), "kernel.map"),
        (total("1000x2x4xf64", "1000xf64", "1, 2"), "kernel.map"),
        (total("1000x3x7xf32", "1000x7xf32", "1"), "kernel.map"),
        (total("1000x9xf32", "1000xf32", "1"), "kernel.reduce_sum"),
        (total("100x3xf32", "100xf32", "1"), "kernel.reduce_sum"),
        (total("3x1000xf32", "1000xf32", "0"), "kernel.reduce_sum"),
    ],
)
def test_sums_of_many_short_rows(text: str, launch: str) -> None:
    """And of no others; nor on a GPU, whose lanes share rows."""
    module = parse_module(text)
    assert launches(text) == [launch]
    assert "kernel.map" not in launches(text, "sm_90")
    shape = next(iter(module.ops)).body.block.args[0].type  # pyright: ignore[reportAttributeAccessIssue]
    kind = np.float64 if "f64" in text else np.float32
    x = np.random.default_rng(0).standard_normal(shape.get_shape()).astype(kind)
    (expected,), (found,) = (run_function(each, [x]) for each in (module, run_pipeline(module, "fuse,dce")))
    assert found.shape == expected.shape and np.allclose(found, expected, rtol=1e-6, atol=1e-6)


FUNCTIONS = {
    "sum": lambda x: x.sum(-1),
    "mean, kept": lambda x: x.mean(-1, keepdim=True),
    "largest": lambda x: x.amax(-1),
    "least": lambda x: x.amin(-1),
    "product": lambda x: x.prod(-1),
    "norm": lambda x: x.norm(dim=-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "variance": lambda x: x.var(-1),
    "distance": lambda x: (x - x.mean(-1, keepdim=True)).abs().sum(-1),
    "a row of columns": lambda x: x.mT.contiguous().view(x.shape).sum(-1),
    "place": lambda x: x.argmax(-1).float(),
    "weighted by place": lambda x: (x * torch.arange(x.shape[-1], device=x.device)).sum(-1),
}


@pytest.mark.parametrize("columns", [2, 3, 5, 8])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_as_in_torch(name: str, columns: int, dtype: torch.dtype) -> None:
    torch.manual_seed(columns)
    x = torch.randn(ROWS, columns).to(dtype)
    x[::7, 0] = float("nan")
    x[3::7, -1] = float("inf")

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return batch["x"][1, 0].float(), {"y": FUNCTIONS[name](batch["x"])}

    step = compile_eval_step(nn.Module(), loss_fn=loss, example={"x": x}, device="cpu")
    step.eval_step({"x": x})
    expected, found = FUNCTIONS[name](x.double()).double(), step.outputs["y"].double()
    # In 16 bits each op of the function rounds.
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 6e-2, torch.float64: 1e-12}[dtype]
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)

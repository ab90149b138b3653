"""What no step can hold, and what torch refuses too: one error at the user's line, before anything has changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._subclasses.fake_tensor import FakeTensorMode

from aicf_mlir.errors import AicfError, BindError, TraceError
from aicf_mlir.step.compile import compile_train_step


def batch(**changed: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(3, 4, generator=generator),
        "t": torch.randn(3, 4, generator=generator),
        **changed,
    }


def model_of() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 4)


def first_loss(loss_fn: Any, model: nn.Module | None = None, example: Any = None) -> torch.Tensor:
    model = model or model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    example = example or batch()
    return compile_train_step(model, optimizer, loss_fn=loss_fn, example=example, device="cpu").train_step(
        example
    )


def refused(call: Callable[[], object], pattern: str) -> None:
    """One line at a line of this file, without torch's own words about itself."""
    with pytest.raises(AicfError) as caught:
        call()
    message = str(caught.value)
    assert re.match(re.escape(__file__) + r":\d+: ", message), message
    assert re.search(pattern, message), message
    assert "\n" not in message
    assert "file an issue" not in message


class Marked(nn.Parameter):
    """A parameter that only has another name."""


class Doubled(torch.Tensor):
    """A tensor with arithmetic of its own."""

    def __mul__(self, other: Any) -> Any:
        return super().__mul__(2 * other)


class Raising(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args: Any) -> Any:
        raise RuntimeError("no")


def freed() -> torch.Tensor:
    tensor = torch.randn(3, 4)
    tensor.untyped_storage().resize_(0)
    return tensor


SPECIAL: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "sparse": (lambda: torch.eye(4).to_sparse(), r"a torch\.sparse_coo tensor; make it dense with to_dense"),
    "compressed": (lambda: torch.eye(4).to_sparse_csr(), r"a torch\.sparse_csr tensor"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(4), torch.ones(4)]), "a nested tensor; pad it"),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged),
        "a NestedTensor, a tensor with its own",
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8),
        r"a quantized tensor; use dequantize\(\)",
    ),
    "mkldnn": (lambda: torch.randn(3, 4).to_mkldnn(), r"a torch\._mkldnn tensor"),
    "fake": (lambda: FakeTensorMode().from_tensor(torch.randn(4)), "a fake tensor, which has no values"),
    "raises": (
        lambda: torch.randn(4).as_subclass(Raising),
        "a Raising, a tensor with its own __torch_function__",
    ),
    "arithmetic": (lambda: torch.randn(4).as_subclass(Doubled), "a Doubled, a tensor with its own __mul__"),
    "freed": (freed, r"a tensor whose storage was freed \(resize_\)"),
}


def quiet_tensor(name: str) -> tuple[Any, str]:
    make, pattern = SPECIAL[name]
    return make(), pattern


@pytest.mark.filterwarnings("ignore")  # torch calls some of these prototypes, and quantization deprecated
@pytest.mark.parametrize("name", SPECIAL)
class TestSpecial:
    def test_batch_entry(self, name: str) -> None:
        tensor, pattern = quiet_tensor(name)
        refused(lambda: first_loss(None, example=batch(x=tensor)), f"batch entry 'x' is {pattern}")

    def test_buffer(self, name: str) -> None:
        tensor, pattern = quiet_tensor(name)
        model = model_of()
        model.register_buffer("extra", tensor)
        refused(lambda: first_loss(None, model), f"'extra' is {pattern}")

    def test_parameter(self, name: str) -> None:
        tensor, pattern = quiet_tensor(name)
        if name == "raises":
            return  # nn.Parameter itself refuses it
        model = model_of()
        model.extra = nn.Parameter(tensor, requires_grad=name != "quantized")
        wanted = "'extra' is " if name in ("quantized", "fake") else "'extra' is a"
        refused(
            lambda: first_loss(None, model),
            wanted if name in ("jagged", "arithmetic") else f"'extra' is {pattern}",
        )

    def test_attribute(self, name: str) -> None:
        tensor, pattern = quiet_tensor(name)
        refused(lambda: first_loss(lambda m, b: (m(b["x"]) * tensor).mean()), pattern)


def test_a_sparse_tensor_that_is_made_in_the_step() -> None:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        made = torch.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], (4, batch["x"].shape[0]))
        return (made @ model(batch["x"])).mean()

    refused(lambda: first_loss(loss), r"a torch\.sparse_coo tensor; make it dense with to_dense\(\)")


def test_a_subclass_without_another_meaning_is_a_tensor() -> None:
    model = model_of()
    model.weight = Marked(model.weight.detach().clone())
    expected = F.mse_loss(model(batch()["x"]), batch()["t"]).detach()
    torch.testing.assert_close(first_loss(None, model), expected)


NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "product": lambda y: y * 1e39,
    "negative": lambda y: y - (-1e39),
    "sum": lambda y: y + 1e39,
    "quotient": lambda y: y / 1e39,
    "reflected quotient": lambda y: 1e39 / y,
    "tensor": lambda y: y + torch.tensor(1e39),
    "integer": lambda y: y * 2**63,
    "infinite": lambda y: y * float("inf"),
    "nan": lambda y: y + float("nan"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_beyond_the_range_is_infinite_as_in_torch(name: str, dtype: torch.dtype) -> None:
    model, example = model_of().to(dtype), {key: value.to(dtype) for key, value in batch().items()}

    def loss(model: Any, given: Any) -> torch.Tensor:
        return NUMBERS[name](model(given["x"])).sum()

    expected = loss(model, example).detach()
    torch.testing.assert_close(first_loss(loss, model, example), expected, equal_nan=True)


BEYOND: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "alpha": (lambda y: torch.add(y, y, alpha=1e39), r"alpha=1e\+39 is beyond the range of float32"),
    "addmm": (lambda y: torch.addmm(y, y, torch.eye(4), alpha=1e39), r"alpha=1e\+39 is beyond the range"),
    "full": (
        lambda y: y * torch.full((4,), 1e39),
        r"torch refuses aten\.full\.default: value cannot be converted",
    ),
    "full_like": (
        lambda y: y * torch.full_like(y, 1e39),
        r"fill_value=1e\+39 is beyond the range of float32",
    ),
    "integer": (lambda y: y * 10**40, "OverflowError: int too big to convert"),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_number_that_torch_refuses_too(name: str) -> None:
    function, pattern = BEYOND[name]
    refused(lambda: first_loss(lambda m, b: function(m(b["x"])).mean()), pattern)


DEEP = (1,) * 9
MANY_DIMENSIONS: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "batch": lambda m, b: m(b["x"]).mean() + b["deep"].sum(),
    "forward": lambda m, b: (m(b["x"]).reshape(*DEEP[2:], 3, 4) * 2).mean(),
    "transpose": lambda m, b: m(b["x"]).reshape(3, *DEEP[2:], 4).transpose(0, 8).mean(),
}


@pytest.mark.parametrize("name", MANY_DIMENSIONS)
def test_nine_dimensions(name: str) -> None:
    example = batch(deep=torch.ones(DEEP))
    refused(
        lambda: first_loss(MANY_DIMENSIONS[name], example=example), "9 dimensions; supported are at most 8"
    )


def test_nine_dimensions_that_no_kernel_sees() -> None:
    loss: Any = lambda m, b: F.mse_loss(m(b["x"].reshape(*DEEP[2:], 3, 4).reshape(3, 4)), b["t"])  # noqa: E731
    expected = loss(model_of(), batch()).detach()
    torch.testing.assert_close(first_loss(loss, example=batch(deep=torch.ones(DEEP))), expected)


FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "cond": (
        lambda m, b: torch.cond(b["x"].sum() > 0, lambda y: y * 2, lambda y: y * 3, (m(b["x"]),)).mean(),
        r"an op that takes functions \(torch\.cond, while_loop, map, scan or the like\)",
    ),
    "while_loop": (
        lambda m, b: while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), m(b["x"]))
        )[1].mean(),
        "an op that takes functions",
    ),
    "scan": (
        lambda m, b: scan(lambda c, y: (c + y, c * y), torch.zeros(4), m(b["x"]))[1].mean(),
        "an op that takes functions",
    ),
    "functionalize": (
        lambda m, b: torch.func.functionalize(lambda x: m(x).square().sum())(b["x"]),
        r"a transform of torch\.func",
    ),
    "backward": (lambda m, b: m(b["x"]).mean().backward(), r"calls `backward\(\)`"),
    "autograd.backward": (lambda m, b: torch.autograd.backward(m(b["x"]).mean()), r"calls `backward\(\)`"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_inside_the_step(name: str) -> None:
    loss, pattern = FUNCTIONS[name]
    refused(lambda: first_loss(loss), pattern)


NO_NUMBER: dict[str, Any] = {
    "text": "fast",
    "numeral": "0.1",
    "none": None,
    "complex": 1j,
    "list": [0.1],
    "two elements": torch.tensor([0.1, 0.2]),
    "complex tensor": torch.tensor(1j),
    "nan": float("nan"),
    "too large": 10**400,
}
NUMBER: dict[str, Any] = {
    "0-d tensor": torch.tensor(0.01),
    "one element": torch.tensor([0.01]),
    "integer": 1,
    "numpy": np.float32(0.01),
    "negative": -0.01,
}


def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [
        torch.optim.Adam(model.parameters(), lr=0.1),
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    ]


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("key", ["lr", "weight_decay"])
@pytest.mark.parametrize("name", NO_NUMBER)
def test_hyperparameters_that_are_no_numbers(name: str, key: str, kind: int) -> None:
    model = model_of()
    optimizer = optimizers(model)[kind]
    before = [p.detach().clone() for p in model.parameters()]
    good = optimizer.param_groups[0][key]
    optimizer.param_groups[0][key] = NO_NUMBER[name]
    refused(
        lambda: compile_train_step(model, optimizer, example=batch(), device="cpu"),
        f"param group 0: the optimizer's {key} (must be|is nan)",
    )
    optimizer.param_groups[0][key] = good
    step = compile_train_step(model, optimizer, example=batch(), device="cpu")
    optimizer.param_groups[0][key] = NO_NUMBER[name]
    with pytest.raises(BindError, match=f"the optimizer's {key} (must be|is nan)"):
        step.train_step(batch())
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    if name not in ("nan", "none"):  # nan has an error of its own, None releases
        with pytest.raises(BindError, match=f"host scalar '{key}' must be"):
            step.meta[key] = NO_NUMBER[name]


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("name", NUMBER)
def test_hyperparameters_that_are_numbers_follow_torch(name: str, kind: int) -> None:
    model, twin = model_of(), model_of()
    ours, theirs = optimizers(model)[kind], optimizers(twin)[kind]
    step = compile_train_step(model, ours, example=batch(), device="cpu")
    for value in (0.1, NUMBER[name]):
        ours.param_groups[0]["lr"] = theirs.param_groups[0]["lr"] = value
        step.train_step(batch())
        theirs.zero_grad()
        F.mse_loss(twin(batch()["x"]), batch()["t"]).backward()
        theirs.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("betas", [None, "ab", (0.9,), (0.9, 0.9, 0.9), 0.9, ("a", "b"), (float("nan"), 0.9)])
def test_betas_that_are_no_two_numbers(betas: Any) -> None:
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.param_groups[0]["betas"] = betas
    refused(
        lambda: compile_train_step(model, optimizer, example=batch(), device="cpu"),
        "the optimizer's betas.* (must|is)",
    )


@pytest.mark.parametrize("key", ["momentum", "dampening", "nesterov", "maximize", "lr"])
def test_a_param_group_that_lacks_an_entry(key: str) -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    del optimizer.param_groups[0][key]
    with pytest.raises(TraceError, match=f"a param group of the optimizer has no '{key}'; it has params"):
        compile_train_step(model, optimizer, example=batch(), device="cpu")

"""The optimizer's update as IR against torch.optim: float64, 50 steps, gradients both ordinary and wild."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from programs import run_by_name, run_pipeline, step_function

from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.signature import argument_labels
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.text.parsing import parse_module

STEPS = 50
SHAPES = {"a": (3, 5), "b": (7,), "c": ()}
"""Parameters by name."""

Gradients = Callable[[np.random.Generator, int, tuple[int, ...]], Array]


def ordinary(rng: np.random.Generator, step: int, shape: tuple[int, ...]) -> Array:
    """Standard normal."""
    return np.asarray(rng.standard_normal(shape))


def wild(rng: np.random.Generator, step: int, shape: tuple[int, ...]) -> Array:
    """Zeros, spikes that the maximum of amsgrad remembers, values that eps hides, and huge ones."""
    scale = (1.0, 0.0, 1e-9, 1e3, 1e-30, 1.0, 1e12)[step % 7]
    return np.asarray(rng.standard_normal(shape) * scale * (rng.random(shape) < 0.8))


class Program:
    """A step whose gradients are inputs: the loss is the sum of every parameter times its wanted gradient."""

    def __init__(self, passes: str, groups: str = "", element: str = "f64"):
        self.module = run_pipeline(parse_module(program_text(groups, element)), f"autodiff,{passes}")
        self.function = step_function(self.module)
        rng = np.random.default_rng(5)
        self.values: dict[str, Array] = {}
        for label, argument in zip(argument_labels(self.function), self.function.args, strict=True):
            dtype = NUMPY_TYPES[element_name(element_type(argument))]
            draw = (
                rng.standard_normal(shape_of(argument))
                if label.role == "param"
                else np.zeros(shape_of(argument))
            )
            self.values[label.name] = np.asarray(draw).astype(dtype)
        for pin in ("bc1_pin", "bc2_pin"):
            self.set(**{pin: np.nan})

    def set(self, **numbers: float) -> None:
        """Write host scalars, `lr_1` for group 1; those that the program lacks are left out."""
        for name, number in numbers.items():
            slot = name.replace("_1", ".1") if name.endswith("_1") else name
            if slot in self.values:
                self.values[slot] = np.asarray(number, dtype=self.values[slot].dtype)

    def step(self, gradients: Mapping[str, Array]) -> None:
        """Run once, and put every update in its place."""
        for name, gradient in gradients.items():
            self.values[f"d{name}"] = gradient.astype(self.values[f"d{name}"].dtype)
        for (role, name), value in run_by_name(self.module, self.values).items():
            if role == "update":
                self.values[name] = value


def program_text(groups: str, element: str) -> str:
    """The text of the step; parameter c is dead when `groups` says so by not being in the loss."""
    types = {name: "x".join([*(str(d) for d in shape), element]) for name, shape in SHAPES.items()}
    arguments = [f'%{n}: tensor<{t}> {{aicf.role = "param", aicf.name = "{n}"}}' for n, t in types.items()]
    arguments += [f'%d{n}: tensor<{t}> {{aicf.role = "input", aicf.name = "d{n}"}}' for n, t in types.items()]
    lines: list[str] = []
    for name, shape in SHAPES.items():
        dims = f"array<i64: {', '.join(map(str, range(len(shape))))}>" if shape else "array<i64>"
        lines += [
            f"%m{name} = nn.mul %{name}, %d{name} : tensor<{types[name]}>",
            f"%s{name} = nn.sum %m{name} {{dims = {dims}}} : (tensor<{types[name]}>) -> tensor<{element}>",
        ]
    lines += [f"%ab = nn.add %sa, %sb : tensor<{element}>", f"%loss = nn.add %ab, %sc : tensor<{element}>"]
    attributes = f"attributes {{aicf.optimizer = [{groups}]}} " if groups else ""
    result = f'tensor<{element}> {{aicf.role = "loss", aicf.name = "loss"}}'
    body = "\n  ".join(lines)
    return (
        f"func.func @step({', '.join(arguments)}) -> ({result}) {attributes}{{\n"
        f"  {body}\n  func.return %loss : tensor<{element}>\n}}\n"
    )


class Torch:
    """The same parameters under torch.optim."""

    def __init__(
        self, program: Program, make: Callable[[dict[str, torch.nn.Parameter]], torch.optim.Optimizer]
    ):
        self.parameters = {
            name: torch.nn.Parameter(torch.from_numpy(program.values[name].astype(np.float64).copy()))
            for name in SHAPES
        }
        self.optimizer = make(self.parameters)

    def step(self, gradients: Mapping[str, Array]) -> None:
        """One step with these gradients."""
        for name, gradient in gradients.items():
            self.parameters[name].grad = torch.from_numpy(gradient.copy())
        self.optimizer.step()

    def values(self) -> Iterator[tuple[str, Any]]:
        """Every parameter, and all state by AICF's names."""
        for name, parameter in self.parameters.items():
            yield name, parameter.detach()
            for key, entry in self.optimizer.state[parameter].items():
                if key != "step" and entry is not None:
                    yield f"{name}.{key}", entry


def compare(
    program: Program, peer: Torch, gradients: Gradients, scalars: Callable[[int], dict[str, float]]
) -> None:
    """Run both for all steps; `scalars` gives the hyperparameters before each step."""
    rng = np.random.default_rng(11)
    for step in range(STEPS):
        drawn = {name: gradients(rng, step, shape) for name, shape in SHAPES.items()}
        program.set(**scalars(step))
        program.step(drawn)
        peer.step(drawn)
        for name, expected in peer.values():
            scale = float(expected.nan_to_num(0.0).abs().max())
            ours = program.values[name]
            np.testing.assert_allclose(
                ours, expected, rtol=1e-10, atol=1e-13 * scale, err_msg=f"{name}, {step}"
            )


def written(**flags: bool) -> str:
    """Options of the pass, as text."""
    return " ".join(f"{name}={str(value).lower()}" for name, value in flags.items())


SGD = [
    flags
    for flags in itertools.product((0.0, 0.9), (0.0, 0.4), (False, True), (0.0, 0.1), (False, True))
    if not (flags[2] and (flags[0] == 0.0 or flags[1] != 0.0)) and not (flags[0] == 0.0 and flags[1] != 0.0)
]


@pytest.mark.parametrize("gradients", [ordinary, wild])
@pytest.mark.parametrize(("momentum", "dampening", "nesterov", "weight_decay", "maximize"), SGD)
def test_sgd_is_that_of_torch(
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    maximize: bool,
    gradients: Gradients,
) -> None:
    flags = written(momentum=momentum != 0, nesterov=nesterov, maximize=maximize)
    program = Program(f"apply-optimizer{{kind=sgd {flags}}}")
    options = {"momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
    peer = Torch(
        program,
        lambda params: torch.optim.SGD(
            params.values(), 0.01, **options, nesterov=nesterov, maximize=maximize
        ),
    )
    compare(program, peer, gradients, lambda step: {"lr": 0.01, **options})
    if momentum:
        np.testing.assert_array_equal(program.values["step"], [STEPS] * len(SHAPES))


@pytest.mark.parametrize("gradients", [ordinary, wild])
@pytest.mark.parametrize(
    ("kind", "amsgrad", "weight_decay", "maximize"),
    list(itertools.product(("adam", "adamw"), (False, True), (0.0, 0.1), (False, True))),
)
def test_adam_is_that_of_torch(
    kind: str, amsgrad: bool, weight_decay: float, maximize: bool, gradients: Gradients
) -> None:
    flags = written(amsgrad=amsgrad, maximize=maximize)
    program = Program(f"apply-optimizer{{kind={kind} {flags}}}")
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    peer = Torch(
        program,
        lambda params: make(
            params.values(), 0.01, (0.8, 0.95), 1e-6, weight_decay, amsgrad=amsgrad, maximize=maximize
        ),
    )
    scalars = {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "weight_decay": weight_decay}
    compare(program, peer, gradients, lambda step: scalars)
    np.testing.assert_allclose(program.values["bc1_inv"], 1 / (1 - 0.8**STEPS), rtol=1e-12)
    np.testing.assert_allclose(program.values["bc2_inv"], 1 / (1 - 0.95**STEPS), rtol=1e-12)


def test_groups_keep_their_own_hyperparameters_and_a_schedule_moves_them() -> None:
    groups = (
        '{kind = "sgd", params = ["a"], momentum = true},'
        ' {kind = "adam", params = ["c", "b"], decoupled = true}'
    )
    # Torch has no optimizer of two kinds: one beside the other.
    program = Program("apply-optimizer", groups)
    assert program.values["step"].shape == (1,)
    assert program.values["step.1"].shape == (2,)
    sgd = Torch(program, lambda params: torch.optim.SGD([params["a"]], 0.1, momentum=0.9))
    adamw = Torch(program, lambda params: torch.optim.AdamW([params["c"], params["b"]], 0.01))
    program.set(momentum=0.9, beta1_1=0.9, beta2_1=0.999, eps_1=1e-8, weight_decay_1=0.01)
    program.set(bc1_pin_1=np.nan, bc2_pin_1=np.nan)
    rng = np.random.default_rng(13)
    for step in range(STEPS):
        rates = (0.1 * 0.95**step, 0.01 * (step + 1) / STEPS)
        sgd.optimizer.param_groups[0]["lr"], adamw.optimizer.param_groups[0]["lr"] = rates
        program.set(lr=rates[0], lr_1=rates[1])
        drawn = {name: ordinary(rng, step, shape) for name, shape in SHAPES.items()}
        for each in (program, sgd, adamw):
            each.step(drawn)
    for name, peer in (("a", sgd), ("b", adamw), ("c", adamw)):
        np.testing.assert_allclose(program.values[name], peer.parameters[name].detach(), rtol=1e-10)


def test_a_pinned_bias_correction_stays_until_released() -> None:
    program = Program("apply-optimizer")
    program.set(lr=0.01, beta1=0.9, beta2=0.99, eps=1e-8, bc1_pin=3.0)
    gradients = {name: np.ones(shape) for name, shape in SHAPES.items()}
    program.step(gradients)
    assert program.values["bc1_inv"] == pytest.approx([3.0] * len(SHAPES))
    assert program.values["bc2_inv"] == pytest.approx([100.0] * len(SHAPES))
    program.set(bc1_pin=np.nan)
    program.step(gradients)
    assert program.values["bc1_inv"] == pytest.approx([1 / (1 - 0.81)] * len(SHAPES))
    assert program.values["step"] == pytest.approx([2.0] * len(SHAPES))


@pytest.mark.parametrize("momentum", [False, True])
def test_each_parameter_follows_its_own_counter(momentum: bool) -> None:
    """After some steps one parameter is set to a later one, and one of SGD back to its first."""
    program = Program("apply-optimizer{kind=sgd momentum=true}" if momentum else "apply-optimizer")
    options = {"momentum": 0.9, "dampening": 0.5}
    peer = Torch(
        program,
        lambda params: (
            torch.optim.SGD(params.values(), 0.01, **options)
            if momentum
            else torch.optim.Adam(params.values(), 0.01, (0.8, 0.95))
        ),
    )

    def before(step: int) -> dict[str, float]:
        if step == 3:
            program.values["step"] = np.array([3, 0, 3] if momentum else [3, 40, 7], np.float32)
            for name, count in zip(SHAPES, program.values["step"], strict=True):
                state = peer.optimizer.state[peer.parameters[name]]
                if not momentum:
                    state["step"].fill_(float(count))
                elif count == 0:
                    del state["momentum_buffer"]
        return {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-8, **options}

    compare(program, peer, ordinary, before)


def test_amsgrad_carries_nan_as_torch_does() -> None:
    program = Program("apply-optimizer{amsgrad=true}")
    peer = Torch(program, lambda params: torch.optim.Adam(params.values(), 0.01, amsgrad=True))
    scalars = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}

    def with_nan(rng: np.random.Generator, step: int, shape: tuple[int, ...]) -> Array:
        values = ordinary(rng, step, shape)
        return np.where(values > 1.5, np.nan, values) if step == 3 else values

    compare(program, peer, with_nan, lambda step: scalars)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
def test_state_has_the_type_of_its_parameter(element: str) -> None:
    program = Program("apply-optimizer", element=element)
    program.set(lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8)
    before = {name: value.dtype for name, value in program.values.items()}
    program.step({name: np.ones(shape) for name, shape in SHAPES.items()})
    assert {name: value.dtype for name, value in program.values.items()} == before
    assert before["a.exp_avg"] == NUMPY_TYPES[element]

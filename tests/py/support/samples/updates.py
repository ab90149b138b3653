"""Samples of the optimizer's ops, against torch.optim itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from models import OPTIMIZERS
from xdsl.dialects.builtin import f64
from xdsl.ir import Operation

from aicf_mlir.interpreters.body import evaluate
from aicf_mlir.optimizers import CLASSES
from aicf_mlir.optimizers.adagrad import Adagrad
from aicf_mlir.optimizers.adam import AdamOp
from aicf_mlir.optimizers.advance import AdvanceOp
from aicf_mlir.optimizers.asgd import Asgd
from aicf_mlir.optimizers.group_values import hyperparameters, switches
from aicf_mlir.optimizers.pointwise import PointwiseRule, ScalarsOp, UpdateOp, scalar_body
from aicf_mlir.optimizers.sgd import SgdOp
from samples.sample import (
    Sample,
    positive,
    value,
    value_by_index,
)

STEP = 3
"""The step that the samples take."""
INDEX = 1
"""Where the counter of their parameter stands among those of its group."""

HYPERPARAMETERS = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 0.001, "weight_decay": 0.1}


def bias_corrections(beta1: float) -> tuple[float, float]:
    """bc1_inv and bc2_inv of the step."""
    return 1 / (1 - beta1**STEP), 1 / (1 - HYPERPARAMETERS["beta2"] ** STEP)


def one_step(make: Callable[..., Any], p: Any, g: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The parameter and state after one step of the optimizer that `make` makes, from `state` on."""
    parameter = torch.nn.Parameter(p.clone())
    parameter.grad = g.clone()
    optimizer = make([parameter])
    optimizer.state[parameter] = {key: entry.clone() for key, entry in state.items()}
    optimizer.step()
    return parameter.detach(), optimizer.state[parameter]


def advance() -> list[Sample]:
    """Counting alone, and with bias corrections, pinned or not."""

    def corrected(step: Any, beta1: Any, beta2: Any, pin1: Any, pin2: Any) -> Any:
        t = (step + 1).double()
        return (
            step + 1,
            torch.where(pin1.isnan(), 1 / (1 - beta1**t), pin1),
            torch.where(pin2.isnan(), 1 / (1 - beta2**t), pin2),
        )

    scalars = ("f64",) * 4
    fills = {0: value_by_index(STEP - 1, 0, 7), 1: value(0.9), 2: value(0.99)}
    return [
        Sample("count", ("3xf32",), AdvanceOp, lambda step: step + 1, {0: value(4.0)}),
        *(
            Sample(
                f"{pin1}-{pin2}",
                ("3xf32", *scalars),
                lambda step, *correction: AdvanceOp(step, correction),
                corrected,
                {**fills, 3: value(pin1), 4: value(pin2)},
            )
            for pin1, pin2 in ((math.nan, math.nan), (1.5, math.nan), (math.nan, 2.5), (1.0, 1.0))
        ),
    ]


def sgd() -> list[Sample]:
    """Every combination of flags, in the first step and later."""
    samples: list[Sample] = []
    for maximize, weight_decay in itertools.product((False, True), (0.0, 0.1)):

        def build(*operands: Any, maximize: bool = maximize) -> Operation:
            return SgdOp(*operands, maximize=maximize)

        def plain(p: Any, g: Any, lr: Any, weight_decay: Any, maximize: bool = maximize) -> Any:
            def make(params: Any) -> Any:
                return torch.optim.SGD(params, float(lr), weight_decay=float(weight_decay), maximize=maximize)

            return one_step(make, p, g, {})[0]

        types = ("7x3xf32", "7x3xf32", "f64", "f64")
        fills = {2: value(0.1), 3: value(weight_decay)}
        samples.append(Sample(f"{maximize}-{weight_decay}", types, build, plain, fills))
    for step, nesterov, dampening in ((1, False, 0.0), (2, False, 0.3), (1, True, 0.0), (2, True, 0.0)):

        def build_momentum(*operands: Any, nesterov: bool = nesterov) -> Operation:
            p, g, lr, weight_decay, *momentum = operands
            return SgdOp(p, g, lr, weight_decay, momentum, INDEX, nesterov=nesterov)

        def with_momentum(*operands: Any, nesterov: bool = nesterov) -> Any:
            p, g, lr, weight_decay, buf, momentum, dampening, step = operands

            def make(params: Any) -> Any:
                numbers = (float(x) for x in (lr, momentum, dampening, weight_decay))
                return torch.optim.SGD(params, *numbers, nesterov=nesterov)

            state = {} if step[INDEX] == 1 else {"momentum_buffer": buf}
            after, state = one_step(make, p, g, state)
            return after, state["momentum_buffer"]

        types = ("5xf32", "5xf32", "f64", "f64", "5xf32", "f64", "f64", "2xf32")
        numbers = {2: 0.1, 3: 0.01, 5: 0.9, 6: dampening}
        fills = {index: value(number) for index, number in numbers.items()}
        fills[7] = value_by_index(3 - step, step)
        samples.append(Sample(f"{step}-{nesterov}", types, build_momentum, with_momentum, fills))
    return samples


def adam() -> list[Sample]:
    """Every combination of flags; small betas, for which a gradient beside a large moment counts."""
    samples: list[Sample] = []
    rows = [(*flags, HYPERPARAMETERS["beta1"]) for flags in itertools.product((False, True), repeat=3)]
    rows += [(False, False, False, beta1) for beta1 in (0.0, 0.3, 0.5)]
    for decoupled, amsgrad, maximize, beta1 in rows:

        def build(*operands: Any, flags: Any = (decoupled, maximize)) -> Operation:
            p, g, m, v, *rest = operands
            moments, hyperparameters = [m, v, *rest[7:]], rest[:7]
            return AdamOp(p, g, moments, hyperparameters, INDEX, decoupled=flags[0], maximize=flags[1])

        def reference(*operands: Any, flags: Any = (decoupled, amsgrad, maximize)) -> Any:
            p, g, m, v, *rest = operands
            lr, beta1, beta2, eps, weight_decay = (float(x) for x in rest[:5])

            def make(params: Any) -> Any:
                kind = torch.optim.AdamW if flags[0] else torch.optim.Adam
                return kind(
                    params, lr, (beta1, beta2), eps, weight_decay, amsgrad=flags[1], maximize=flags[2]
                )

            state = {"step": torch.tensor(STEP - 1.0), "exp_avg": m, "exp_avg_sq": v}
            names = ["exp_avg", "exp_avg_sq"]
            if flags[1]:
                state["max_exp_avg_sq"] = rest[7]
                names.append("max_exp_avg_sq")
            after, state = one_step(make, p, g, state)
            return after, *(state[name] for name in names)

        types = ("3x5xf32",) * 4 + ("f64",) * 5 + ("2xf64",) * 2 + (("3x5xf32",) if amsgrad else ())
        numbers = (HYPERPARAMETERS | {"beta1": beta1}).values()
        fills = {index + 4: value(number) for index, number in enumerate(numbers)} | {
            3: positive,
            9: value_by_index(1.0, bias_corrections(beta1)[0]),
            10: value_by_index(1.0, bias_corrections(beta1)[1]),
            11: positive,
        }
        name = f"{decoupled}-{amsgrad}-{maximize}"
        if beta1 != HYPERPARAMETERS["beta1"]:
            name, fills = f"beta1-{beta1}", fills | {1: value(1e-5), 2: value(3e3)}
        samples.append(Sample(name, types, build, reference, fills))
    return samples


def scalars() -> list[Sample]:
    """What updates read of a group, beside the same formulas; the first step and a later one."""

    def of_adagrad(step: Any, lr: Any, lr_decay: Any, eps: Any, weight_decay: Any) -> Any:
        rate = lr / (1 + step.double() * lr_decay)
        return step + 1, rate, eps.expand(2), weight_decay.expand(2)

    def of_asgd(
        step: Any, eta: Any, mu: Any, lr: Any, lambd: Any, alpha: Any, t0: Any, weight_decay: Any
    ) -> Any:
        new, first = step.double() + 1, step == 0
        rate = torch.where(first, lr.float(), eta).double()
        return (
            step + 1,
            (lr / (1 + lambd * lr * new) ** alpha).float(),
            (1 / (new - t0).clamp(min=1.0)).float(),
            rate,
            1 - lambd * rate,
            torch.where(first, 1.0, mu.double()),
            weight_decay.expand(2),
        )

    step = value_by_index(0.0, STEP - 1.0)
    rows: list[tuple[PointwiseRule, Any, dict[int, Any]]] = [
        (Adagrad(), of_adagrad, dict(enumerate((step, *map(value, (0.1, 0.2, 0.3, 0.4)))))),
        (Asgd(), of_asgd, dict(enumerate((step, *map(value, (0.25, 0.5, 0.1, 0.2, 0.75, 1.0, 0.3)))))),
    ]
    return [
        Sample(
            rule.KIND,
            ("2xsingle",) * len(rule.counters) + ("f64",) * len(rule.hyperparameters),
            lambda *operands, rule=rule: ScalarsOp(rule, operands, f64),
            reference,
            fills,
        )
        for rule, reference, fills in rows
    ]


def small(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Of a mean whose square is less than the mean of squares."""
    return 0.1 * rng.standard_normal(shape)


FILLS = {"exp_avg": None, "momentum_buffer": None, "prev": None, "ax": None, "grad_avg": small}
"""Of states; the others are positive."""
NUMBERS = {"mu_product": 0.5, "eta": 0.25, "mu": 0.5}
"""Of the state of each parameter, beside the step."""


def updates() -> list[Sample]:
    """One step of each optimizer that is a formula, with the scalars that the first of the two ops gives."""
    samples: list[Sample] = []
    for config in OPTIMIZERS:
        rule_type = next(rule for torch_class, rule in CLASSES if torch_class.title == config.kind.__name__)
        if not issubclass(rule_type, PointwiseRule):
            continue
        group = config(torch.nn.Linear(1, 1)).param_groups[0]
        rule = rule_type(**switches(rule_type, group))
        settings = hyperparameters(rule_type, group)
        numbers = {name: NUMBERS[name] for name in rule.VECTORS}
        given = [STEP - 1.0, *numbers.values(), *(settings[name] for name in rule.hyperparameters)]
        body, _ = scalar_body(rule, "f64")
        made = evaluate(body, [np.array([x]) for x in given], (1,), (), [(1,)] * len(body.results))

        def build(*operands: Any, rule: PointwiseRule = rule) -> Operation:
            return UpdateOp(rule, operands, INDEX)

        def reference(
            p: Any,
            g: Any,
            *rest: Any,
            rule: PointwiseRule = rule,
            config: Any = config,
            numbers: Any = numbers,
        ) -> Any:
            state = dict(zip(rule.states, rest, strict=False))
            state |= {name: torch.tensor(number) for name, number in numbers.items()}
            state["step"] = torch.tensor(STEP - 1.0)
            after, state = one_step(lambda params: config.kind(params, **config.options), p, g, state)
            return after, *(state[name] for name in rule.states)

        scalars = [float(value[0]) for value in made[len(rule.counters) :]]
        tensors = 2 + len(rule.states)
        fills = {tensors + at: value_by_index(0.0, number) for at, number in enumerate(scalars)}
        for at, name in enumerate(rule.states):
            fill = FILLS.get(name, positive)
            fills |= {} if fill is None else {2 + at: fill}
        types = ("3x5xf32",) * tensors + ("2xcompute",) * len(scalars)
        samples.append(Sample(str(config), types, build, reference, fills, units=4.0))
    return samples

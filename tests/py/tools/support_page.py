"""Writes docs/support.md from the tables and from steps that ran beside torch: `python tests/py/tools/support_page.py`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from ops_page import filled
from torch import nn
from torch_layers import (
    LAYERS,
    LOSSES,
    ON_SEVERAL_DEVICES,
    OPTIMIZERS,
    OTHER_CALLS,
    Wrapped,
    input_of,
    optimizer_of,
    target_of,
)

import aicf_mlir
from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.advice import ADVICE, Advice
from aicf_mlir.optimizers import CLASSES
from aicf_mlir.optimizers.rule import UpdateRule

PAGE = Path(__file__).parents[3] / "docs" / "support.md"
TEXT = """\
# What of PyTorch can be trained

`python tests/py/tools/support_page.py` writes this page from steps that ran in AICF and in torch, and from the tables of
the compiler. `tests/py/tools/test_support_page.py` compares the page with them.

A step is compiled whole or refused whole. A refusal names the missing op with its shapes and your line, and changes nothing.
[`aicf-trace --survey`](tools.md#what-does-my-model-lack) lists every unsupported part of your model at once. [The list of
ops](ops.md) says what functions and methods of tensors become, with element types and limits.

## Which layers of torch.nn train?

These train as in torch, each placed after a linear layer: {layers}.

A `Lazy…` layer is what it has become, once the model has run. Containers are what they hold. A module of your own is what its
`forward` calls. Running statistics and counters that a `forward` updates are updated.

These are refused:

{refused_layers}

## Which losses train?

These train as in torch: {losses}. So does any function of (model, batch) that returns a 0-d float tensor.

These are refused:

{refused_losses}

## Which optimizers train?

These are the optimizers of torch.optim and of `aicf_mlir.optim`. An option in bold is compiled in as on or off; a
number is on where it is not 0. All values may change between two steps, by a scheduler or by hand.

{optimizers}

Param groups may differ in all of these. `foreach`, `fused` and `capturable` change nothing. `differentiable=True` and step hooks
are not supported.

Any other optimizer whose `step` is tensor code, in a library or of your own, is traced as it is written: {traced_optimizers}. Its
numbers may change between two steps too. A decision that it bases on them is compiled in, and refused when it would be different;
one by a number that it counts itself, as its steps, is taken in each step.

An optimizer whose first step differs from the later ones, or begins a state with a gradient, takes that step in torch: call
`backward()` and `optimizer.step()` once, then compile.

These are refused: {refused_optimizers}. So is an optimizer that does one of the following:

- it takes a closure
- it decides by more than four values of tensors, or counts with one
- it keeps its count in an attribute of its own
- it keeps text, lists or objects
- it uses a parameter that has no gradient
- it draws random numbers

## What can I write instead?

{advice}
"""

Reason = str
"""Why something is refused; empty for what trains."""


def refusal(
    model: nn.Module, loss: Callable[..., torch.Tensor], batch: dict[str, torch.Tensor], optimizer: str
) -> Reason:
    """Empty where a step compiles, which must then do what torch does; else what stands in its way."""
    twin = copy.deepcopy(model)
    ours, theirs = optimizer_of(optimizer, model), optimizer_of(optimizer, twin)
    random = torch.get_rng_state()
    expected = loss(twin, batch)
    is_random = not torch.equal(torch.get_rng_state(), random)
    try:
        step = aicf_mlir.compile_train_step(model, ours, loss_fn=loss, example=batch, device="cpu")
    except TraceError:
        found = aicf_mlir.survey(model, loss, batch, optimizer=ours)
        return "; ".join(dict.fromkeys(short(finding.what, finding.reason) for finding in found.findings))
    got = step.train_step(batch)
    if is_random:
        assert got.isfinite()
        return ""
    torch.autograd.backward(expected)
    theirs.step()
    torch.testing.assert_close(got, expected)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)
    return ""


def short(what: str, reason: Reason) -> str:
    """The op; for what is none, why, up to what to do."""
    return (
        f"`{what.rpartition('.')[0]}`" if what.startswith("aten.") else reason.split("; ")[0].split(" (`")[0]
    )


def layer(name: str) -> Reason:
    """Behind a Linear, with the mean of squares as loss."""
    make, shape = LAYERS[name]
    model = Wrapped(make(), shape)
    return refusal(model, lambda m, b: m(b["x"]).square().mean(), {"x": input_of(shape)}, "SGD")


def loss(name: str) -> Reason:
    """Of probabilities in (0, 1), behind a linear layer."""
    module, x = LOSSES[name](), input_of((3, 4))
    call = OTHER_CALLS.get(type(module), lambda module, y, t: module(y, t))
    model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())
    batch = {"x": x, "t": target_of(module, x.shape)}
    return refusal(model, lambda m, b: call(module, m(b["x"]), b["t"]), batch, "SGD")


def optimizer(name: str) -> Reason:
    """Of the weight of a Linear."""
    return refusal(nn.Linear(4, 4), lambda m, b: m(b["x"]).square().mean(), {"x": input_of((3, 4))}, name)


def listed(names: Iterable[str]) -> str:
    """Names in prose, a name a line, so that lines stay."""
    return ",\n".join(f"`{name}`" if name.isidentifier() else name for name in names)


def table(head: tuple[str, str], rows: Mapping[str, str]) -> str:
    """Of Markdown."""
    lines = [head, ("---", "---"), *((f"`{name}`", text.replace("|", "\\|")) for name, text in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def said(advice: Advice) -> str:
    """The code, and what there is to say of it."""
    return f"`{advice.code}`, {advice.note}" if advice.note else f"`{advice.code}`"


def options_of(rule: type[UpdateRule]) -> str:
    """The entries of a param group, those that are switches in bold."""
    switches = [flag.key for flag in rule.FLAGS]
    return ", ".join(f"**`{key}`**" if key in switches else f"`{key}`" for key in rule.entries())


def found(reason_of: Callable[[str], Reason], names: Iterable[str], every: int) -> dict[str, Reason]:
    """By name: what is tried of one of `every`, and what the page says of the others."""
    rows = (
        line.removeprefix("| `").removesuffix(" |").split("` | ") for line in PAGE.read_text().splitlines()
    )
    refused = {row[0]: row[1].replace("\\|", "|") for row in rows if len(row) == 2}
    return {
        name: refused.get(name, "") if number % every else reason_of(name)
        for number, name in enumerate(names)
    }


def render(every: int = 1) -> str:
    """The page; of layers and losses one of `every` is tried."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about its own layers
        layers = found(layer, LAYERS, every) | dict.fromkeys(ON_SEVERAL_DEVICES, "a step runs on one device")
        losses = found(loss, LOSSES, every)
        optimizers = {name: optimizer(name) for name in OPTIMIZERS}
    rules = {torch_class.title: options_of(rule) for torch_class, rule in CLASSES}
    traced = [name for name, reason in optimizers.items() if not reason and name not in rules]
    assert all(not optimizers[name] for name in rules)
    values = {
        "layers": listed(name for name, reason in layers.items() if not reason),
        "refused_layers": table(("layer", "because of"), {n: r for n, r in layers.items() if r}),
        "losses": listed(name for name, reason in losses.items() if not reason),
        "refused_losses": table(("loss", "because of"), {n: r for n, r in losses.items() if r}),
        "optimizers": table(("optimizer", "options"), rules),
        "traced_optimizers": listed(traced),
        "refused_optimizers": listed(name for name, reason in optimizers.items() if reason),
        "advice": table(("instead of", "write"), {op: said(advice) for op, advice in ADVICE.items()}),
    }
    return "\n\n".join(map(filled, TEXT.split("\n\n"))).format(**values).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())

"""Steps made of PyTorch's own samples of its ops: `OpInfo` of torch.testing, each sample one small model.

`ModuleInfo`'s modules too. The tensors that a sample differentiates are the parameters of the model, those that it writes to its
buffers, the others are entries of the batch. The loss
is a projection of everything the op returns on fixed random numbers, times one more parameter, so that an op
without a gradient has a step too.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aicf_mlir import compile_train_step
from aicf_mlir.errors import AicfError

Batch = dict[str, torch.Tensor]

STEPS = 2
RATE = 1e-4
FAR = 1e-3
"""A parameter that the first step moves further may have left where the op is smooth: the second is not compared."""

TOLERANCES = {torch.float64: (1e-9, 1e-11), torch.float32: (1e-4, 1e-5), torch.bfloat16: (4e-2, 1e-2)}
"""Relative and absolute, by the type of the floats; beside them torch's own distance from float64 counts."""


@dataclass(frozen=True)
class Slot:
    """Where a tensor stood in the arguments of a sample."""

    name: str


class Applied(torch.nn.Module):
    """`op` of one sample: `loss` is the step's loss function."""

    def __init__(self, op: Callable[..., Any], sample: Any):
        super().__init__()
        leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        self.op = op
        self.spec = spec
        self.scale = torch.nn.Parameter(torch.tensor(0.75, dtype=floats_of(leaves)))
        self.batch: Batch = {}
        self.leaves: list[Any] = []
        for number, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                self.leaves.append(leaf)
                continue
            name = f"a{number}"
            self.leaves.append(Slot(name))
            value = leaf.detach().clone()
            if leaf.requires_grad and (leaf.is_floating_point() or leaf.is_complex()):
                self.register_parameter(name, torch.nn.Parameter(value))
            elif leaf.is_complex():
                self.register_buffer(name, value)
            else:
                self.batch[name] = value
        given = {name: value.clone() for name, value in self.batch.items()}
        with torch.no_grad():
            results = tensors_of(self(self.batch))
        for name in [name for name, value in self.batch.items() if not torch.equal(value, given[name])]:
            self.register_buffer(name, given[name])  # the op writes to it, as to running statistics
            del self.batch[name]
        self.size = 0.0
        """The sum of the absolute values of what the loss adds up."""
        random = torch.Generator().manual_seed(3)
        for number, result in enumerate(results):
            if result.numel():
                drawn = torch.rand(result.shape, generator=random, dtype=torch.float64) + 0.5
                self.batch[f"projection{number}"] = drawn.to(self.scale.dtype)
                terms = real_of(result).double().abs() * drawn
                self.size += float(terms.nan_to_num(0.0, 0.0, 0.0).sum())
        if not self.batch:
            self.batch["unused"] = torch.zeros(1)

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Any:
        values = [
            leaf
            if not isinstance(leaf, Slot)
            else batch[leaf.name]
            if leaf.name in batch
            else getattr(self, leaf.name)
            for leaf in self.leaves
        ]
        first, args, kwargs = pytree.tree_unflatten(values, self.spec)
        return self.op(first, *args, **kwargs)

    def of_type(self, dtype: torch.dtype) -> Applied:
        """The same step on the same numbers in another float type."""
        other = copy.deepcopy(self).to(dtype)
        other.batch = {
            name: value.to(dtype) if value.is_floating_point() else value.clone()
            for name, value in self.batch.items()
        }
        return other


def floats_of(leaves: Sequence[Any]) -> torch.dtype:
    """The float type of a sample's arguments, or of their parts; float32 where there is none."""
    types = [leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)]
    found = [each.to_real() for each in types if each.is_floating_point or each.is_complex]
    return found[0] if found else torch.float32


def tensors_of(result: Any) -> list[torch.Tensor]:
    """The tensors among the results of an op."""
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def real_of(result: torch.Tensor) -> torch.Tensor:
    """The sum of the parts of complex numbers, which are weighed differently; others as they are."""
    return result.real + 0.5 * result.imag if result.is_complex() else result


def loss(model: Applied, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The projection, a 0-d tensor."""
    total = torch.zeros_like(model.scale)
    for number, result in enumerate(tensors_of(model(batch))):
        real = real_of(result).to(model.scale.dtype)
        total = total + (real * batch[f"projection{number}"] if real.numel() else real).sum()
    return total * model.scale


Trail = dict[str, torch.Tensor]
"""Loss, gradients and buffers of each step, by name."""


def in_torch(model: Applied) -> Trail:
    """What torch computes in `STEPS` steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    seen: Trail = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        value = loss(model, model.batch)
        value.backward()
        seen[f"{step} loss"] = value.detach()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                seen[f"{step} d{name}"] = parameter.grad.clone()
        far = any(bool((part.abs() > FAR / RATE).any() | ~part.isfinite().all()) for part in seen.values())
        seen |= {f"{step} {name}": buffer.clone() for name, buffer in model.named_buffers()}
        if far:
            break
        optimizer.step()
    return seen


def in_aicf(model: Applied, device: str) -> Trail:
    """What AICF computes, the gradients by themselves; raises as `compile_train_step` does."""
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    batch = {name: value.to(device) for name, value in model.batch.items()}
    step = compile_train_step(
        model, optimizer, loss_fn=loss, example=batch, device=device, keep_gradients=True
    )
    seen: Trail = {}
    for number in range(STEPS):
        seen[f"{number} loss"] = step.train_step(batch).detach().cpu().clone()
        for name, gradient in step.gradients.items():
            seen[f"{number} d{name}"] = gradient.detach().cpu().clone()
        seen |= {f"{number} {name}": buffer.cpu().clone() for name, buffer in model.named_buffers()}
    step.close()
    return seen


def differences(ours: Trail, torchs: Trail, exact: Trail, dtype: torch.dtype, size: float) -> list[str]:
    """What is not torch's: a line for each tensor, nothing where all agree.

    An element may miss torch's by the tolerance of `dtype` and four times what torch itself misses the same
    step in float64 by; a gradient that torch does not have is 0. The loss and the gradient of its factor are sums
    of terms whose absolute values add up to `size`.
    """
    relative, absolute = TOLERANCES[dtype]
    found: list[str] = []
    steps = {name.split()[0] for name in torchs}
    for name in sorted(name for name in {*ours, *torchs} if name.split()[0] in steps):
        mine, its = (trail.get(name) for trail in (ours, torchs))
        if mine is None or its is None:
            there = mine if mine is not None else its
            assert there is not None
            if bool((there != 0).any()):
                found.append(
                    f"{name}: only {'torch' if mine is None else 'AICF'} has it: {there.flatten()[:4]}"
                )
            continue
        if mine.shape != its.shape or mine.dtype != its.dtype:
            found.append(f"{name}: {mine.dtype}{list(mine.shape)} for {its.dtype}{list(its.shape)}")
            continue
        wide, its64, best = (
            (torch.view_as_real(each) if each.is_complex() else each).double()
            for each in (mine, its, exact.get(name, its))
        )
        slack = (its64 - best).abs().nan_to_num(0.0, 0.0, 0.0) * 4
        large = its64.abs().nan_to_num(0.0, 0.0, 0.0)
        scale = size if name.endswith((" loss", " dscale")) else large.max().item() if large.numel() else 0.0
        allowed = relative * large + absolute * (1 + scale) + slack
        near = (wide - its64).abs() <= allowed
        same = near | (wide == its64) | (wide.isnan() & its64.isnan())
        if not bool(same.all()):
            where = (~same).nonzero()[0].tolist()
            at = tuple(where)
            found.append(
                f"{name}{where}: {wide[at].item():.9g}, torch {its64[at].item():.9g}, float64 {best[at].item():.9g}"
            )
    return found


@functools.cache
def infos() -> dict[str, list[Any]]:
    """The entries of `op_db` by name; a variant of an op has its own entry under the same name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, list[Any]] = {}
    for info in op_db:
        found.setdefault(info.name, []).append(info)
    return found


def samples(info: Any, dtype: torch.dtype) -> Iterator[Any]:
    """The samples of an op on the CPU, of `dtype` where the op has it, always the same."""
    torch.manual_seed(0)
    if dtype not in info.dtypes:
        dtype = next((each for each in (torch.int64, torch.bool) if each in info.dtypes), dtype)
    yield from info.sample_inputs(
        "cpu", dtype, requires_grad=(dtype.is_floating_point or dtype.is_complex) and info.supports_autograd
    )


@functools.cache
def module_infos() -> dict[str, Any]:
    """The entries of `module_db` by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db}


def modules(info: Any, dtype: torch.dtype) -> Iterator[tuple[torch.nn.Module, Any]]:
    """Each module of an entry in training mode, with a sample of its arguments, always the same."""
    from torch.testing._internal.opinfo.core import SampleInput

    torch.manual_seed(0)
    given = {"device": "cpu", "dtype": dtype, "requires_grad": dtype.is_floating_point, "training": True}
    for each in info.module_inputs_func(info, **given):
        made, forward = each.constructor_input, each.forward_input
        module = info.module_cls(*made.args, **made.kwargs).to(dtype)
        if info.is_lazy:
            module(*forward.args, **forward.kwargs)
        first, *rest = (*forward.args, *forward.kwargs.values())[: max(1, len(forward.args))]
        others = forward.kwargs if forward.args else dict(list(forward.kwargs.items())[1:])
        yield module, SampleInput(first, args=tuple(rest), kwargs=others)


class Draws(TorchDispatchMode):
    """Whether torch draws random numbers meanwhile; the samples of its ops set the seed in front of each call."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Outcome:
    """Of one sample: `kind` is right, refused, wrong, error (not one of AICF's) or skipped.

    What torch itself fails at is skipped, and what it draws: AICF draws other numbers.
    """

    kind: str
    text: str = ""


def tried(op: Callable[..., Any], sample: Any, dtype: torch.dtype, device: str = "cpu") -> Outcome:
    """Train one sample beside torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = Applied(op, sample)
            if dtype.itemsize == 2:
                model = model.of_type(dtype)
            dtype = model.scale.dtype  # that of an op without floats is float32
            with Draws() as draws:
                torchs = in_torch(copy.deepcopy(model))
            exact = in_torch(model.of_type(torch.float64)) if dtype != torch.float64 else torchs
        except Exception as error:  # noqa: BLE001 - whatever torch has against its own sample
            return Outcome("skipped", f"{type(error).__name__}: {error}")
        try:
            ours = in_aicf(model, device)
        except AicfError as error:
            return Outcome("refused", f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - any other is a fault, which the test tells
            return Outcome("error", f"{type(error).__name__}: {error}")
    if draws.seen:
        return Outcome("skipped", "random numbers")
    found = differences(ours, torchs, exact, dtype, model.size)
    return Outcome("wrong", "\n".join(found)) if found else Outcome("right")

"""What users do to a live model, optimizer or loss after compiling: what a step must follow, and what it must refuse by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import live_worlds
import numpy as np
import torch
from live_worlds import World
from torch import nn

from aicf_mlir import AicfError, BindError, GuardError, StateError

Change = Callable[[World], Any]
MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2)


def momentum(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, dampening=0.5)


def tensor_lr(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=torch.tensor(1e-2))


@dataclass(frozen=True)
class Case:
    change: Change
    error: type[AicfError] | None = None
    message: str = ""
    optimizer: MakeOptimizer = adam
    meta: tuple[str, ...] = ()


def group(world: World) -> dict[str, Any]:
    return world.optimizer.param_groups[0]


def state(world: World) -> dict[str, Any]:
    return world.optimizer.state[world.model.first.weight]


def no_grad(change: Change) -> Change:
    def run(world: World) -> None:
        with torch.no_grad():
            change(world)

    return run


def setting(path: str, value: Any) -> Change:
    """`model.scale = value`, or an entry of a dictionary or a list along the path."""

    def run(world: World) -> None:
        owner: Any = world
        *parts, last = path.split(".")
        for part in parts:
            owner = (
                owner[int(part)]
                if part.isdigit()
                else owner[part]
                if isinstance(owner, dict)
                else getattr(owner, part)
            )
        if type(owner) in (dict, list, nn.Sequential):
            owner[int(last) if last.isdigit() else last] = value
        else:
            setattr(owner, last, value)

    return run


def moments(world: World) -> torch.Tensor:
    return torch.full_like(world.model.first.weight, 0.125)


def resume(world: World) -> None:
    other = World(adam, world.device)
    other.eager(11)
    world.optimizer.load_state_dict(other.optimizer.state_dict())


def reloaded(world: World) -> None:
    world.model.load_state_dict({k: v * 0.5 for k, v in world.model.state_dict().items()})


def scheduled(world: World) -> None:
    torch.optim.lr_scheduler.ExponentialLR(world.optimizer, 0.5).step()


FOLLOWED: dict[str, Case] = {
    "closed-over network written in place": Case(no_grad(lambda w: w.teacher.weight.zero_())),
    "closed-over network loaded": Case(
        lambda w: w.teacher.load_state_dict({"weight": torch.ones(3, 6), "bias": torch.zeros(3)})
    ),
    "moving average into a closed-over network": Case(
        lambda w: w.teacher.weight.data.lerp_(torch.ones(3, 6, device=w.device), 0.1)
    ),
    "network in a plain list": Case(no_grad(lambda w: w.model.unlisted[0].weight.mul_(0.5))),
    "buffer written in place": Case(lambda w: w.model.mask.mul_(0.5)),
    "plain tensor attribute written in place": Case(lambda w: w.model.table.add_(1.0)),
    "frozen layer written in place": Case(no_grad(lambda w: w.model.frozen.weight.add_(0.25))),
    "parameter written in place": Case(no_grad(lambda w: w.model.first.weight.mul_(0.5))),
    "parameter.data written in place": Case(lambda w: w.model.first.weight.data.mul_(0.5)),
    "model loaded": Case(reloaded),
    "lr": Case(lambda w: group(w).update(lr=0.05)),
    "betas": Case(lambda w: group(w).update(betas=(0.5, 0.9))),
    "eps": Case(lambda w: group(w).update(eps=1e-3)),
    "weight decay": Case(lambda w: group(w).update(weight_decay=0.1)),
    "lr that is a tensor": Case(lambda w: group(w)["lr"].fill_(0.05), optimizer=tensor_lr),
    "lr that becomes a tensor": Case(lambda w: group(w).update(lr=torch.tensor(0.05))),
    "scheduler": Case(scheduled),
    "momentum and dampening": Case(
        lambda w: group(w).update(momentum=0.5, dampening=0.1), optimizer=momentum
    ),
    "state cleared": Case(lambda w: w.optimizer.state.clear()),
    "state cleared, momentum": Case(lambda w: w.optimizer.state.clear(), optimizer=momentum),
    "state replaced": Case(lambda w: setattr(w.optimizer, "state", defaultdict(dict))),
    "state of one parameter dropped": Case(lambda w: w.optimizer.state.pop(w.model.first.weight)),
    "state of one parameter dropped, momentum": Case(
        lambda w: w.optimizer.state.pop(w.model.first.weight), optimizer=momentum
    ),
    "moment replaced": Case(lambda w: state(w).update(exp_avg=moments(w))),
    "moment's data replaced": Case(lambda w: setattr(state(w)["exp_avg"], "data", moments(w))),
    "moment written in place": Case(lambda w: state(w)["exp_avg"].fill_(0.25)),
    "moment transposed in place": Case(
        lambda w: setattr(
            w.optimizer.state[w.model.layers[1].weight]["exp_avg"],
            "data",
            w.optimizer.state[w.model.layers[1].weight]["exp_avg"].data.clone().t(),
        )
    ),
    "counter of one parameter written": Case(lambda w: state(w)["step"].fill_(7.0)),
    "counter of one parameter replaced": Case(lambda w: state(w).update(step=torch.tensor(7.0))),
    "momentum buffer removed": Case(lambda w: state(w).update(momentum_buffer=None), optimizer=momentum),
    "an eager step between": Case(lambda w: w.eager(21)),
    "optimizer loaded": Case(resume),
    "gradients cleared": Case(lambda w: w.optimizer.zero_grad(set_to_none=False)),
    "attribute that is never read": Case(setting("model.epoch", 3)),
    "attribute added": Case(setting("model.note", "new")),
    "entry that is never read": Case(setting("model.options.seen", 1)),
    "entry added to a dictionary": Case(setting("weights.another", 1.0)),
    "entry that the loss never reads": Case(setting("weights.logged", 3.5)),
    "configuration that is never read": Case(setting("model.config.comment", "something")),
    "mode of a layer without one": Case(lambda w: w.model.first.eval()),
    "mode of a dropout with p = 0": Case(lambda w: w.model.still.eval()),
    "the same value again": Case(setting("model.scale", float("2.0"))),
    "an equal list": Case(setting("model.widths", [1.0, [0.5, 0.25]])),
    "unused layer added": Case(lambda w: w.model.add_module("probe", nn.Identity())),
    "hook that does nothing": Case(lambda w: w.model.first.register_forward_hook(lambda *_: None)),
    "unused layer's hook": Case(lambda w: nn.Linear(2, 2).register_forward_hook(lambda *_: None)),
    "number in meta": Case(setting("model.scale", 1.25), meta=("model.scale",)),
    "closure number in meta": Case(lambda w: w.set_alpha(0.1), meta=("alpha",)),
    "dictionary replaced by an equal one": Case(setting("model.options", {"gain": 1.0, "seen": 0})),
}


def replaced_layer(w: World) -> None:
    w.model.layers[1] = nn.Linear(8, 8).to(w.device)


def removed_from_groups(w: World) -> None:
    del group(w)["params"][0]


def class_attribute(w: World) -> None:
    live_worlds.Net.slope = 2.5


def patched_method(w: World) -> None:
    live_worlds.Net.extra = lambda self, h: h * 0.0  # type: ignore[method-assign]


def patched_global(w: World) -> None:
    live_worlds.GLOBAL_SCALE = 0.25


def patched_helper(w: World) -> None:
    live_worlds.shared_helper = torch.sigmoid  # type: ignore[assignment]


def ramp_written(w: World) -> None:
    w.model.ramp[1] = 3.0


REFUSED: dict[str, Case] = {
    "layer replaced": Case(replaced_layer, GuardError, r"model\.layers"),
    "parameter replaced": Case(
        lambda w: setattr(w.model.first, "weight", nn.Parameter(torch.ones(8, 6, device=w.device))),
        BindError,
        "first.weight",
    ),
    "frozen layer replaced": Case(
        lambda w: setattr(w.model, "frozen", nn.Linear(8, 8).to(w.device)), GuardError, "frozen"
    ),
    "buffer replaced": Case(
        lambda w: setattr(w.model, "mask", torch.zeros(8, device=w.device)), BindError, "mask"
    ),
    "plain tensor replaced": Case(
        lambda w: setattr(w.model, "table", torch.zeros(8, device=w.device)), BindError, "table"
    ),
    "activation swapped": Case(setting("model.layers.2", nn.Sigmoid()), GuardError, r"model\.layers"),
    "layers reordered": Case(
        lambda w: setattr(w.model, "layers", nn.Sequential(*reversed(w.model.layers))),
        GuardError,
        r"model\.layers",
    ),
    "layer appended": Case(lambda w: w.model.layers.append(nn.ReLU()), GuardError, r"model\.layers"),
    "member of a plain list replaced": Case(
        lambda w: w.model.unlisted.__setitem__(0, nn.Linear(8, 8).to(w.device)), GuardError, "unlisted"
    ),
    "parameter taken out of its group": Case(
        removed_from_groups, GuardError, "param group 0 has other parameters"
    ),
    "group added": Case(
        lambda w: w.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]}),
        StateError,
        "2 param groups",
    ),
    "groups replaced": Case(lambda w: setattr(w.optimizer, "param_groups", []), StateError, "0 param groups"),
    "train mode of a dropout": Case(
        lambda w: w.model.drop.train(), GuardError, r"model\.drop\.training was False, now True"
    ),
    "train mode of everything": Case(lambda w: w.model.train(), GuardError, r"model\.drop\.training"),
    "dropout's p": Case(setting("model.still.p", 0.5), GuardError, r"model\.still\.p was 0\.0, now 0\.5"),
    "forward hook": Case(
        lambda w: w.model.first.register_forward_hook(lambda m, x, y: torch.mul(y, 2)),
        GuardError,
        "first.*forward_hooks",
    ),
    "forward pre-hook": Case(
        lambda w: w.model.register_forward_pre_hook(lambda m, x: (x[0] * 2,)), GuardError, "forward_pre_hooks"
    ),
    "forward hook that keeps": Case(
        lambda w: w.model.first.register_forward_hook(lambda m, x, y: w.weights.update(seen=y)),
        GuardError,
        "first.*forward_hooks",
    ),
    "backward hook": Case(
        lambda w: w.model.first.register_full_backward_hook(lambda *_: None), GuardError, "backward_hooks"
    ),
    "backward pre-hook": Case(
        lambda w: w.model.first.register_full_backward_pre_hook(lambda *_: None),
        GuardError,
        "backward_pre_hooks",
    ),
    "gradient hook of a parameter": Case(
        lambda w: w.model.first.weight.register_hook(lambda g: g * 0),
        BindError,
        "first.weight.*gradient hook",
    ),
    "accumulation hook of a parameter": Case(
        lambda w: w.model.first.weight.register_post_accumulate_grad_hook(lambda p: None),
        BindError,
        "gradient hook",
    ),
    "optimizer step pre-hook": Case(
        lambda w: w.optimizer.register_step_pre_hook(lambda *_: None), GuardError, "step_pre_hooks"
    ),
    "optimizer step post-hook": Case(
        lambda w: w.optimizer.register_step_post_hook(lambda *_: None), GuardError, "step_post_hooks"
    ),
    "number attribute": Case(
        setting("model.scale", 3.0), GuardError, r'model\.scale was 2\.0, now 3\.0.*meta=\["model\.scale"\]'
    ),
    "exponent": Case(setting("model.power", 2), GuardError, r"model\.power was 1, now 2"),
    "flag": Case(setting("model.residual", False), GuardError, r"model\.residual was True, now False"),
    "attribute deleted": Case(
        lambda w: delattr(w.model, "scale"), GuardError, r"model\.scale was 2\.0, now nothing"
    ),
    "entry of a dictionary": Case(setting("model.options.gain", 2.0), GuardError, "gain"),
    "dictionary replaced": Case(setting("model.options", {"gain": 3.0}), GuardError, r"model\.options"),
    "entry of the loss's dictionary": Case(setting("weights.kl", 0.0), GuardError, "kl"),
    "member of a nested list": Case(setting("model.widths.1.0", 2.0), GuardError, r"model\.widths\[1\]"),
    "configuration object": Case(
        setting("model.config.temperature", 0.1), GuardError, r"model\.config\.temperature was 0\.9, now 0\.1"
    ),
    "array written in place": Case(ramp_written, GuardError, r"model\.ramp"),
    "array replaced": Case(setting("model.ramp", np.array([1.0, 5.0])), GuardError, r"model\.ramp"),
    "closure": Case(lambda w: w.set_alpha(0.1), GuardError, r"alpha was 0\.75, now 0\.1"),
    "global": Case(patched_global, GuardError, r"GLOBAL_SCALE was 0\.5, now 0\.25"),
    "global function": Case(patched_helper, GuardError, "shared_helper"),
    "class attribute": Case(class_attribute, GuardError, r"Net\.slope was 1\.5, now 2\.5"),
    "instance attribute over a class attribute": Case(
        setting("model.slope", 2.5), GuardError, r"model\.slope was nothing, now 2\.5"
    ),
    "method patched": Case(patched_method, GuardError, r"Net\.extra"),
    "forward of one instance": Case(
        lambda w: setattr(w.model.first, "forward", lambda x: x[:, :1].expand(-1, 8)),
        GuardError,
        r"model\.first\.forward",
    ),
    "weight norm added": Case(
        lambda w: torch.nn.utils.parametrizations.weight_norm(w.model.first), BindError, "first.weight"
    ),
    "parameter's data replaced": Case(
        lambda w: setattr(w.model.first.weight, "data", torch.ones(8, 6, device=w.device)),
        BindError,
        "'first.weight' was moved",
    ),
    "parameter transposed in place": Case(
        lambda w: setattr(w.model.layers[1].weight, "data", w.model.layers[1].weight.detach().t()),  # pyright: ignore
        BindError,
        "'layers.1.weight' was moved",
    ),
    "another dtype": Case(lambda w: w.model.double(), BindError, "was moved"),
    "loaded by assignment": Case(
        lambda w: w.model.load_state_dict(
            {k: v.clone() for k, v in w.model.state_dict().items()}, assign=True
        ),
        BindError,
        "was moved",
    ),
    "closed-over network moved": Case(
        lambda w: setattr(w.teacher.weight, "data", torch.ones(3, 6, device=w.device)),
        BindError,
        "'teacher.weight' was moved",
    ),
    "parameter frozen": Case(
        lambda w: w.model.first.requires_grad_(False), BindError, "'first.weight' had requires_grad=True"
    ),
    "parameter unfrozen": Case(
        lambda w: w.model.frozen.requires_grad_(True), BindError, "'frozen.weight' had requires_grad=False"
    ),
    "amsgrad": Case(lambda w: group(w).update(amsgrad=True), StateError, "amsgrad"),
    "maximize": Case(lambda w: group(w).update(maximize=True), StateError, "maximize"),
    "momentum off": Case(lambda w: group(w).update(momentum=0.0), StateError, "momentum", optimizer=momentum),
    "nesterov": Case(
        lambda w: group(w).update(nesterov=True, dampening=0.0), StateError, "nesterov", optimizer=momentum
    ),
    "moment of another shape": Case(
        lambda w: state(w).update(exp_avg=torch.ones(3)), BindError, "'exp_avg' of parameter 'first.weight'"
    ),
    "moment that is no tensor": Case(
        lambda w: state(w).update(exp_avg=3.0), BindError, "'exp_avg' of parameter 'first.weight'"
    ),
    "counter that is no number": Case(
        lambda w: state(w).update(step="three"), BindError, "'step' of parameter 'first.weight'"
    ),
}

"""Optimizers of torch and of ours, and the rule that each becomes: a row for each class and each flag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aicf_mlir import optim
from aicf_mlir.optimizers.adadelta import Adadelta
from aicf_mlir.optimizers.adagrad import Adagrad
from aicf_mlir.optimizers.adam import Adam
from aicf_mlir.optimizers.adamax import Adamax
from aicf_mlir.optimizers.asgd import Asgd
from aicf_mlir.optimizers.lion import LionRule
from aicf_mlir.optimizers.nadam import NAdam
from aicf_mlir.optimizers.radam import RAdam
from aicf_mlir.optimizers.rmsprop import RmsProp
from aicf_mlir.optimizers.rprop import Rprop
from aicf_mlir.optimizers.rule import UpdateRule
from aicf_mlir.optimizers.sgd import Sgd

OPTIMIZERS: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], UpdateRule]] = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), Sgd()),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5), Sgd(momentum=True)),
    "nesterov": (lambda p: torch.optim.SGD(p, 0.1, 0.9, nesterov=True), Sgd(momentum=True, nesterov=True)),
    "sgd maximize": (lambda p: torch.optim.SGD(p, lr=0.1, maximize=True), Sgd(maximize=True)),
    "adam": (lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1), foreach=False), Adam()),
    "amsgrad": (lambda p: torch.optim.Adam(p, amsgrad=True), Adam(amsgrad=True)),
    "adamw": (lambda p: torch.optim.AdamW(p, maximize=True), Adam(decoupled=True, maximize=True)),
    "adam as adamw": (lambda p: torch.optim.Adam(p, decoupled_weight_decay=True), Adam(decoupled=True)),
    "rmsprop": (lambda p: torch.optim.RMSprop(p), RmsProp()),
    "momentum of rmsprop": (lambda p: torch.optim.RMSprop(p, momentum=0.9), RmsProp(momentum=True)),
    "centered": (
        lambda p: torch.optim.RMSprop(p, centered=True, maximize=True),
        RmsProp(centered=True, maximize=True),
    ),
    "adagrad": (lambda p: torch.optim.Adagrad(p), Adagrad()),
    "adagrad maximize": (lambda p: torch.optim.Adagrad(p, maximize=True), Adagrad(maximize=True)),
    "adadelta": (lambda p: torch.optim.Adadelta(p), Adadelta()),
    "adadelta maximize": (lambda p: torch.optim.Adadelta(p, maximize=True), Adadelta(maximize=True)),
    "adamax": (lambda p: torch.optim.Adamax(p), Adamax()),
    "adamax maximize": (lambda p: torch.optim.Adamax(p, maximize=True), Adamax(maximize=True)),
    "nadam": (lambda p: torch.optim.NAdam(p), NAdam()),
    "nadam decoupled": (
        lambda p: torch.optim.NAdam(p, decoupled_weight_decay=True, maximize=True),
        NAdam(decoupled=True, maximize=True),
    ),
    "radam": (lambda p: torch.optim.RAdam(p), RAdam()),
    "radam decoupled": (
        lambda p: torch.optim.RAdam(p, decoupled_weight_decay=True, maximize=True),
        RAdam(decoupled=True, maximize=True),
    ),
    "rprop": (lambda p: torch.optim.Rprop(p), Rprop()),
    "rprop maximize": (lambda p: torch.optim.Rprop(p, maximize=True), Rprop(maximize=True)),
    "lion": (lambda p: optim.Lion(p), LionRule()),
    "lion maximize": (lambda p: optim.Lion(p, maximize=True), LionRule(maximize=True)),
    "asgd": (lambda p: torch.optim.ASGD(p), Asgd()),
    "asgd maximize": (lambda p: torch.optim.ASGD(p, maximize=True), Asgd(maximize=True)),
    "our sgd": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), Sgd(momentum=True)),
    "our adam": (lambda p: optim.Adam(p, 0.1, (0.8, 0.9), amsgrad=True), Adam(amsgrad=True)),
    "our adamw": (lambda p: optim.AdamW(p), Adam(decoupled=True)),
}

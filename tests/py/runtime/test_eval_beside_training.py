"""An evaluation step over the model that a train step trains: the same memory, every update seen, its own mode and outputs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import classification, to_device, values
from oracle import assert_same_bits
from torch import nn

from aicf_mlir import GuardError, compile_eval_step, compile_train_step


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))


def told(model: Any, batch: Any) -> Any:
    logits = model(batch["x"])
    return F.cross_entropy(logits, batch["t"]), {
        "logits": logits,
        "correct": (logits.argmax(1) == batch["t"]).sum(),
    }


def test_each_update_is_seen_and_nothing_is_trained(device: str) -> None:
    model = net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batch = to_device(classification(6, 8, 4), device)
    train = compile_train_step(model, optimizer, loss_fn=told, example=batch, device=device, seed=3)
    model.eval()
    held_out = compile_eval_step(
        model, loss_fn=told, example=batch, device=device, metrics={"correct": "sum"}
    )
    places = [parameter.data_ptr() for parameter in model.parameters()]
    model.train()
    train.train_step(batch)
    train.capture(batch)
    correct = 0
    for number in range(4):
        model.train()
        train.replay(2) if number % 2 else train.train_step(batch)
        model.eval()
        before = {name: value.clone() for name, value in values(model, optimizer).items()}
        loss = held_out.eval_step(batch)
        expected, others = told(copy.deepcopy(model), batch)
        torch.testing.assert_close(loss, expected.detach())
        torch.testing.assert_close(held_out.outputs["logits"], others["logits"].detach())
        correct += int(others["correct"])
        assert_same_bits(values(model, optimizer), before)
    assert int(held_out.metrics()["correct"]) == correct
    assert [parameter.data_ptr() for parameter in model.parameters()] == places


def test_the_mode_is_the_one_it_was_compiled_for(device: str) -> None:
    model = net().to(device)
    batch = to_device(classification(6, 8, 4), device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train = compile_train_step(model, optimizer, loss_fn=told, example=batch, device=device)
    model.eval()
    held_out = compile_eval_step(model, loss_fn=told, example=batch, device=device)
    held_out.eval_step(batch)
    with pytest.raises(GuardError, match=r"training was True, now False"):
        train.train_step(batch)
    model.train()
    with pytest.raises(GuardError, match=r"training was False, now True"):
        held_out.eval_step(batch)
    train.train_step(batch)

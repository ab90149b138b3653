"""What users train, on each device: every step as torch's, and `replay(n)` with the bits of n steps.

All networks and transformers and some of the other rows by default, others of them with another `--seed`; every row with
`--user-models`, a third of a second each.
"""

from __future__ import annotations

import random
import zlib

import pytest
import torch
from beside_torch import assert_near, losses_of_torch
from replayed import Built, compiled, copies, replay_differs, stepped
from user_models import CASES
from user_models.case import Case

STEPS = 4


def built(case: Case, name: str, device: str) -> Built:
    """With the random numbers of the case."""
    torch.manual_seed(zlib.crc32(name.encode()))
    model = case.model().to(device)
    batch = {key: value.to(device) for key, value in case.batch().items()}
    return model, case.optimizer(model), case.loss, batch


WHOLE = ("networks", "transformers", "training")
"""Themes of which every row always runs."""

SOME = 80
"""Rows of the other themes that run by default."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        rest = [name for name in CASES if not name.startswith(WHOLE)]
        chosen = random.Random(int(metafunc.config.getoption("--seed"))).sample(rest, SOME)
        every = bool(metafunc.config.getoption("--user-models"))
        metafunc.parametrize("name", [name for name in CASES if every or name not in rest or name in chosen])


def test_trains_as_torch(name: str, device: str) -> None:
    case = CASES[name]
    build = copies(built(case, name, device))
    reference, optimizer, loss, batch = build()
    expected = losses_of_torch(reference, optimizer, loss, batch, STEPS)
    ours = build()
    before = {key: tensor.clone() for key, tensor in ours[0].named_parameters()}
    step = compiled(ours, device)
    first, found, losses = stepped(step, ours, STEPS)
    for got, wanted in zip(losses, expected, strict=True):
        assert_near(got, wanted, case.tolerance, "loss")
    trained = False
    for key, wanted in (*reference.named_parameters(), *reference.named_buffers()):
        if wanted.is_floating_point():
            assert_near(found[key], wanted.detach(), case.tolerance, key)
        else:
            assert torch.equal(found[key], wanted), key
        trained |= key in before and not torch.equal(before[key], wanted)
    assert trained, "torch has trained nothing"
    assert not replay_differs(step, ours, first, found, losses)

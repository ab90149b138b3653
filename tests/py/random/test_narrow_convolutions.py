"""
Random convolutions of f16 and bf16 on a CPU: results and both gradients are torch's in float64 but for what is rounded. As nests
they are so on each device, also in f32.

`pytest tests/py/random/test_narrow_convolutions.py --programs 100 --seed 1000` runs 500 of each, five in a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from convolution_nests import write_nests
from narrow_convolutions import Convolution, Convolutions, convolution, faults_of, loss_of
from random_layers import Draw

from aicf_mlir import compile_train_step

IN_A_STEP = 5


def test_convolutions_are_those_of_torch(program_seed: int) -> None:
    run(drawn(program_seed))


def test_nests_are_those_of_torch(program_seed: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_nests(monkeypatch)
    run(drawn(program_seed, (torch.float32, torch.bfloat16, torch.float16)), device)


def drawn(seed: int, dtypes: Sequence[torch.dtype] = (torch.bfloat16, torch.float16)) -> list[Convolution]:
    """The convolutions of a seed."""
    draw, generator = Draw(seed), torch.Generator().manual_seed(seed)
    dtype = draw.choice(dtypes)
    return [convolution(draw, generator, dtype) for _ in range(IN_A_STEP)]


def run(each: list[Convolution], device: str = "cpu") -> None:
    """Compile them as one step, eagerly and by replay, and compare."""
    model = Convolutions(each).to(device)
    batch = {"one": torch.ones(1, device=device)}
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        loss_fn=loss_of,
        example=batch,
        device=device,
        keep_gradients=True,
    )
    start = step.snapshot()
    for replayed in (False, True):
        if replayed:
            step.restore(start)  # a gradient that is not finite is one of an update, too
            step.warmup(batch)
            step.capture(batch)
            step.replay(1)
        else:
            step.train_step(batch)
        outputs = step.outputs
        faults: list[str] = []
        for number, one in enumerate(each):
            grads = {"x": model.x[number].grad, "w": model.w[number].grad, "b": model.b[number].grad}
            given = {name: g.cpu() for name, g in grads.items() if g is not None}
            given["y"] = outputs[f"y{number}"].cpu() if one.g.numel() else one.g
            faults += [f"{number} {one!r}: {fault}" for fault in faults_of(one, given)]
        assert not faults, "\n".join(faults)


def test_terms_beyond_the_largest_number_are_summed() -> None:
    """A product of one window is 80000, and the sum of two is 30000."""
    x = torch.tensor([[[40000.0, 25000.0], [0, 0]]] * 2, dtype=torch.float16).reshape(1, 4, 2)
    w = torch.tensor([-2.0, 2.0], dtype=torch.float16).expand(4, 3, 2).contiguous()
    g = torch.ones(1, 6, 3, dtype=torch.float16)
    run([Convolution(1, True, (1,), (0,), (1,), 2, (0,), (0, 0), "constant", x, w, None, g, "")])


def test_what_is_wrong_is_found() -> None:
    (one, *_) = drawn(1)
    exact, _ = one.exact()
    right = {name: value.to(one.x.dtype) for name, value in exact.items()}
    assert not faults_of(one, right)
    for name, value in right.items():
        wrong = value.clone()
        wrong.view(-1)[-1] += 0.1 * (1 + wrong.abs().max())
        with pytest.raises(AssertionError):
            assert not faults_of(one, {**right, name: wrong})

"""Fourier transforms in a step: values and gradients are torch's, for every function of torch.fft and any length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from costs import Some
from torch import fft, nn

from aicf_mlir import compile_train_step
from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import fourier
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.frontend.tracing import trace

Function = Callable[[torch.Tensor], torch.Tensor]


class Several(nn.Module):
    """Functions of a parameter each."""

    def __init__(self, functions: Mapping[str, Function], x: torch.Tensor):
        super().__init__()
        self.functions = functions
        self.weights = nn.ParameterDict({name: nn.Parameter(torch.ones_like(x)) for name in functions})

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: self.functions[name](x * self.weights[name]) for name in self.functions}


def projected(
    model: Several, batch: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """A loss that weighs every part of every result by another number, and the results."""
    total = batch["x"].new_zeros(())
    results: dict[str, torch.Tensor] = {}
    for name, found in model(batch["x"]).items():
        real = torch.view_as_real(found.resolve_conj()) if found.is_complex() else found
        weights = torch.arange(real.numel(), dtype=real.dtype).reshape(real.shape).cos()
        total = total + (real * weights).sum() + (real * real).mean()
        results[name] = real
    return total, results


def expect_torchs(functions: Mapping[str, Function], x: torch.Tensor, tolerance: float) -> None:
    """Each result and each gradient is torch's in float64, relative to its largest number."""
    model, exact = Several(functions, x), Several(functions, x.double())
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        device="cpu",
        example={"x": x},
        loss_fn=projected,
        keep_gradients=True,
    )
    step.train_step({"x": x})
    loss, results = projected(exact, {"x": x.double()})
    loss.backward()
    outputs, gradients = step.outputs, step.gradients
    for name, result in results.items():
        gradient: Any = exact.weights[name].grad
        for ours, torchs in ((outputs[name], result), (gradients[f"weights.{name}"], gradient)):
            assert ours.shape == torchs.shape, name
            off = (ours.double() - torchs).abs().max() / (torchs.abs().max() + 1e-30)
            assert off < tolerance, (name, off.item())
    step.close()


def of_complex(function: Function) -> Function:
    """A function of complex numbers of both signs."""
    return lambda y: function(torch.complex(y, (2 * y).sin()))


ALL: dict[str, Function] = {
    "fft": lambda y: fft.fft(y, dim=0),
    "fft of complex": of_complex(lambda z: fft.fft(z, n=7)),
    "ifft": of_complex(lambda z: fft.ifft(z, norm="ortho")),
    "rfft": lambda y: fft.rfft(y, norm="forward"),
    "irfft": of_complex(lambda z: fft.irfft(z)),
    "irfft odd": of_complex(lambda z: fft.irfft(z, n=9, dim=1)),
    "hfft": of_complex(lambda z: fft.hfft(z, norm="ortho")),
    "ihfft": lambda y: fft.ihfft(y, dim=1),
    "fft2": lambda y: fft.fft2(y, s=(4, 5)),
    "ifft2": of_complex(lambda z: fft.ifft2(z)),
    "rfft2": lambda y: fft.rfft2(y, dim=(0, 1)),
    "irfft2": of_complex(lambda z: fft.irfft2(z, s=(5, 7))),
    "fftn": of_complex(lambda z: fft.fftn(z)),
    "rfftn": lambda y: fft.rfftn(y, norm="ortho"),
    "irfftn": of_complex(lambda z: fft.irfftn(z)),
    "hfft2": of_complex(lambda z: fft.hfft2(z)),
    "fftshift": lambda y: fft.fftshift(fft.fft(y)),
    "ifftshift": lambda y: fft.ifftshift(fft.rfft(y), dim=2),
    "frequencies": lambda y: y * fft.fftfreq(6, dtype=y.dtype) + fft.rfftfreq(11, dtype=y.dtype),
}


@pytest.mark.parametrize("part", range(3))
def test_all_functions_are_torchs(part: int, some: Some) -> None:
    names = some(sorted(ALL)[part::3])
    expect_torchs({name: ALL[name] for name in names}, torch.randn(3, 4, 6, dtype=torch.float64), 1e-13)


def test_constants_have_the_digits_of_float32() -> None:
    some = {name: ALL[name] for name in ("fft", "rfft2", "irfft", "ifftshift")}
    expect_torchs(some, torch.randn(3, 4, 6), 2e-6)


def of_length(length: int) -> dict[str, Function]:
    """Transforms of this length."""

    def rows(y: torch.Tensor) -> torch.Tensor:
        return y[:, :length]

    return {
        f"fft {length}": of_complex(lambda z: fft.fft(rows(z))),
        f"rfft {length}": lambda y: fft.rfft(rows(y)),
        f"irfft {length}": of_complex(lambda z: fft.irfft(z[:, : length // 2 + 1], n=length)),
    }


def test_long_transforms_are_taken_apart(monkeypatch: pytest.MonkeyPatch, some: Some) -> None:
    monkeypatch.setattr(fourier, "DIRECT", 4)
    lengths = (7, 15, 24)  # as if they were long: one factor, two, and three
    functions = {name: f for length in lengths for name, f in of_length(length).items()}
    expect_torchs(dict(some([*functions.items()])), torch.randn(2, 24, dtype=torch.float64), 1e-13)


def test_a_length_with_a_large_prime_factor_is_refused() -> None:
    model = nn.Linear(2, 4099)
    with pytest.raises(
        TraceError, match=r"length has the prime factor 4099; at most 2048 are supported: pad"
    ):
        trace(model, lambda m, b: fft.rfft(m(b["x"])).abs().sum(), {"x": torch.randn(2, 2)})


def test_constants_are_one_argument_each_and_exact_under_tf32() -> None:
    def loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        h = model(batch["x"])
        for _ in range(3):
            h = fft.irfft(fft.rfft(h))
        return (h * h).sum()

    text = str(trace(nn.Linear(4, 16), loss, {"x": torch.randn(2, 4)}, precision=Precision("tf32")))
    assert text.count("aicf.literal") == 4
    marked = [line.split(" = ")[1].split()[0] for line in text.splitlines() if "allow_tf32" in line]
    assert marked == ["nn.linear"]


def hann(y: torch.Tensor) -> torch.Tensor:
    return torch.hann_window(16, dtype=y.dtype)


def spectrum(y: torch.Tensor, **options: Any) -> torch.Tensor:
    return torch.stft(y, 16, 4, window=hann(y), return_complex=True, **options)


SHORT: dict[str, Function] = {
    "stft": spectrum,
    "no centre": lambda y: spectrum(y, center=False, normalized=True),
    "both sides": lambda y: spectrum(y[0], onesided=False, pad_mode="constant"),
    "short window": lambda y: torch.stft(y, 16, 4, 10, torch.ones(10, dtype=y.dtype), return_complex=True),
    "magnitudes": lambda y: spectrum(y).abs().clamp(min=1e-3).log(),
    "istft of a length": lambda y: torch.istft(spectrum(y) ** 2, 16, 4, window=hann(y), length=60),
    "unfold": lambda y: y.unfold(1, 8, 3),
}


def test_short_time_transforms_are_torchs(some: Some) -> None:
    expect_torchs(dict(some([*SHORT.items()])), torch.randn(2, 64, dtype=torch.float64), 1e-12)

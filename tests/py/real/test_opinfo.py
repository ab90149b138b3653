"""Torch's own samples of its ops: each trains as torch does, or is refused by an error of AICF's; never wrong.

`pytest tests/py/real/test_opinfo.py --opinfo-samples 6` trains six samples of every op of `op_db`; by default one sample of
some ops runs, others with another `--seed`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from opinfo import Outcome, differences, infos, module_infos, modules, samples, tried

NAMES = (Path(__file__).parent / "opinfo_names.txt").read_text().split()
"""Ops of which some sample compiles, found by trying them all; without those of `UNDEFINED`."""

SOME = 90
"""How many ops run by default, about a quarter of a second each."""

UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
"""Results that nobody promises."""

IN_FLOAT32 = (
    "msort",
    "sort",
    "topk",
    "kthvalue",
    "median",
    "nanmedian",
    "argsort",
    "nn.functional.hardsigmoid",
)
"""Equal numbers, of which bfloat16 makes more, may stand in any order; torch's 1/6 has the digits of a float32."""

MENDED = (
    ("_chunk_cat", "", 4),
    ("index_fill", "", 5),
    ("linalg.vector_norm", "", 0),
    ("logit", "", 0),
    ("native_group_norm", "", 0),
    ("native_layer_norm", "", 1),
    ("nn.functional.pad", "circular", 0),
    ("std", "", 9),
    ("torch.ops.aten._safe_softmax.default", "", 0),
    ("unfold_copy", "", 0),
)
"""Samples that were wrong, or failed by an error of another kind: name, variant, number."""

IMAGES = (
    *(
        "conv",
        "pool",
        "interpolate",
        "upsample",
        "grid_sampl",
        "unfold",
        "functional.pad",
        "constant_pad",
        "norm",
    ),
    *("pixel_", "channel_shuffle"),
)
"""Parts of the names of ops on images."""

REASONS = (
    r"has no elements: its shape is",
    r"the step changes the batch entry '\w+' in place",
    r"aten\.(max_pool2d_with_indices_backward|_batch_norm_with_update_functional)\.default.* is not supported",
    r"aten\._ctc_loss|Ctc_loss",
    r"_linear_cross_entropy_batch_chunked",
    r"complex(64|128)|ComplexDouble|ComplexFloat",
)
"""Why modules, and ops on images, are refused."""

PARTS = 24
"""So many tests have these ops, or modules, between them."""

LARGEST = 400
"""Samples of one op that are looked at."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "chosen" in metafunc.fixturenames:
        count, seed = (int(metafunc.config.getoption(name)) for name in ("--opinfo-samples", "--seed"))
        names = sorted(set(infos()) - set(UNDEFINED)) if count else random.Random(seed).sample(NAMES, SOME)
        metafunc.parametrize("chosen", names)


def dtype_of(name: str) -> torch.dtype:
    """Most ops in float32, some in float64 and bfloat16 where torch has them; an op always in the same."""
    if name in IN_FLOAT32:
        return torch.float32
    other = {1: torch.float64, 5: torch.bfloat16}.get(sum(name.encode()) % 8, torch.float32)
    everywhere = all(other in info.supported_dtypes("cpu") for info in infos()[name])
    return other if everywhere else torch.float32


def spread(found: Sequence[Any], count: int, seed: int) -> list[tuple[int, Any]]:
    """`count` samples with their numbers, from the first to the last; the one that `seed` says where it is 1."""
    if count == 1:
        number = random.Random(seed).randrange(len(found))
        return [(number, found[number])]
    step = max(1, len(found) // count)
    return [(number, found[number]) for number in range(0, len(found), step)][:count]


def run(name: str, variant: str, number: int, dtype: torch.dtype = torch.float32) -> Outcome:
    """One sample by its number."""
    info = next(each for each in infos()[name] if each.variant_test_name == variant)
    return tried(info.op, list(samples(info, dtype))[number], dtype)


def test_samples_are_right_or_refused(chosen: str, request: pytest.FixtureRequest) -> None:
    count, seed = (int(request.config.getoption(name)) for name in ("--opinfo-samples", "--seed"))
    dtype = dtype_of(chosen)
    for info in infos()[chosen] if count else infos()[chosen][:1]:
        found = [sample for sample, _ in zip(samples(info, dtype), range(LARGEST), strict=False)]
        for number, sample in spread(found, count or 1, seed) if found else []:
            outcome = tried(info.op, sample, dtype)
            assert outcome.kind not in ("wrong", "error"), (
                f"{chosen} {info.variant_test_name!r} {number}: {outcome}"
            )


@pytest.mark.parametrize(("name", "variant", "number"), MENDED)
def test_what_was_wrong_is_mended(name: str, variant: str, number: int) -> None:
    outcome = run(name, variant, number)
    assert outcome.kind == ("refused" if name == "std" else "right"), outcome


def images() -> list[str]:
    """Ops on images, by name."""
    others = ("linalg", "log_", "masked.", "renorm", "norm")
    return [
        name
        for name in sorted(infos())
        if any(part in name for part in IMAGES) and not name.startswith(others) and name not in UNDEFINED
    ]


def expect_known(label: str, outcome: Outcome) -> None:
    """Right, or refused for one of the `REASONS`."""
    assert outcome.kind not in ("wrong", "error"), f"{label}: {outcome}"
    if outcome.kind == "refused":
        assert any(re.search(reason, outcome.text) for reason in REASONS), f"{label}: {outcome.text}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("part", range(PARTS))
def test_ops_on_images_are_refused_for_known_reasons_alone(
    part: int, dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    count = 12 if request.config.getoption("--campaign") else 1
    for name in images()[part::PARTS]:
        for info in infos()[name]:
            found = list(samples(info, dtype))
            for number, sample in spread(found, count, int(request.config.getoption("--seed"))):
                expect_known(f"{name} {info.variant_test_name!r} {number}", tried(info.op, sample, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("part", range(PARTS))
def test_modules_are_refused_for_known_reasons_alone(
    part: int, dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    count = LARGEST if request.config.getoption("--campaign") else 1
    for name in sorted(module_infos())[part::PARTS]:
        found = list(modules(module_infos()[name], dtype))
        for number, (module, sample) in spread(found, count, int(request.config.getoption("--seed"))):
            expect_known(f"{name} {number} {module}", tried(module, sample, dtype))


TRAINED = ("add", "cumsum", "matmul", "nn.functional.layer_norm", "softmax", "sum", "where")


@pytest.mark.parametrize("name", TRAINED)
def test_ops_are_not_all_refused(name: str) -> None:
    assert run(name, "", 0).kind == "right"


def test_what_is_wrong_is_found() -> None:
    torchs = {"0 loss": torch.tensor(2.0), "0 da0": torch.tensor([1.0, -3.0, torch.nan])}

    def found(**ours: torch.Tensor) -> list[str]:
        changed = {**torchs, **{f"0 {name}": value for name, value in ours.items()}}
        return differences(changed, torchs, torchs, torch.float32, 1.0)

    assert not found()
    assert found(loss=torch.tensor(2.001))
    assert found(da0=torch.tensor([1.001, -3.0, torch.nan]))
    assert found(da0=torch.tensor([1.0, -3.0, 0.0]))
    assert found(da0=torch.tensor([1.0, torch.nan, torch.nan]))
    assert found(da0=torch.tensor([[1.0, -3.0, torch.nan]]))
    assert found(da1=torch.tensor([1.0]))

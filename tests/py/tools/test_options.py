"""The table of options: signatures, documentation and reports follow its rows, and an effect that does nothing does nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import options_page
import pytest
import torch
from models import mlp

from aicf_mlir import BindError, CompiledTrainStep, compile_eval_step, compile_step, compile_train_step
from aicf_mlir.step.options.option import EVERYWHERE, Effect, Entry
from aicf_mlir.step.options.table import ENVIRONMENT, OPTIONS, effects_of, options_of

FUNCTIONS: Mapping[Entry, Callable[..., Any]] = {
    "train": compile_train_step,
    "eval": compile_eval_step,
    "loop": compile_step,
}


@pytest.mark.parametrize("entry", FUNCTIONS)
def test_signatures_are_the_rows_of_the_table(entry: Entry) -> None:
    own = inspect.signature(FUNCTIONS[entry]).parameters.values()
    keywords = [each for each in own if each.kind is inspect.Parameter.KEYWORD_ONLY]
    assert keywords == [option.parameter(entry) for option in options_of(entry)]


@pytest.mark.parametrize("entry", FUNCTIONS)
def test_help_describes_every_option(entry: Entry) -> None:
    text = " ".join((inspect.getdoc(FUNCTIONS[entry]) or "").split())
    for option in OPTIONS:
        assert (f" {option.keyword}: {option.text}" in text) == (entry in option.taken_by)


def test_rows_are_whole() -> None:
    assert len({option.keyword for option in OPTIONS}) == len(OPTIONS)
    for option in OPTIONS:
        assert option.text.endswith("."), option.keyword
        assert option.taken_by and set(option.taken_by) <= set(EVERYWHERE) == FUNCTIONS.keys()
        assert all(
            hasattr(CompiledTrainStep, name) or name in ("name", "meta", "warmup_required")
            for name in option.reports
        )


def test_the_page_is_that_of_the_table() -> None:
    assert options_page.PAGE.read_text() == options_page.page(), (
        "write it again: python tests/py/tools/options_page.py"
    )


def test_an_option_that_is_not_given_asks_for_no_pass() -> None:
    """All but those of the environment."""
    kinds = {option.effect for option in OPTIONS if option.effect is not None}
    given = {option.keyword: option.default for option in options_of("train")}
    for effects in (effects_of(given), effects_of({})):
        assert effects.keys() == kinds | set(ENVIRONMENT)
        for kind in kinds:
            effect = effects[kind]
            assert not effect.passes("cpu")
            assert not effect.numbers
            assert effect.added([], torch.device("cpu")) == []


def test_every_step_has_every_effect_once() -> None:
    step = compile_eval_step(mlp(8, 8), B=4, D=8, device="cpu")
    request = step._request  # pyright: ignore[reportPrivateUsage]
    assert {type(effect) for effect in request.effects.values()} == request.effects.keys()
    assert all(issubclass(kind, Effect) for kind in request.effects)


def test_what_is_no_option_is_refused_by_python() -> None:
    misspelt: dict[str, Any] = {"clip_grad_norms": 1.0}
    with pytest.raises(TypeError, match="clip_grad_norms"):
        compile_train_step(mlp(8, 8), None, B=4, D=8, **misspelt)
    with pytest.raises(BindError, match="accumulate must be a whole number"):
        compile_train_step(mlp(8, 8), None, B=4, D=8, accumulate=0)

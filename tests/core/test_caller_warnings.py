"""Warnings name the line of the user's program."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shardir as sd
from shardir import nn, random
from shardir.caller_warnings import warn_caller
from shardir.passes.pipeline import Pipeline


def split_words() -> sd.Array:
    with sd.config(legacy_prng_key="warn"):
        # A cached program does not warn again: no other test makes three keys.
        return random.split(random.PRNGKey(0), 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: nn.one_hot(np.ones(2, np.float32), 3),
        lambda: sd.jit(nn.one_hot, static_argnums=1)(np.ones(2, np.float32), 3),
        lambda: Pipeline.parse("combine"),
        split_words,
        lambda: warn_caller("text", UserWarning),
    ],
)
def test_a_warning_names_the_caller(call: Callable[[], object]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]

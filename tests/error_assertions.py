"""Assertions on the class, the first line and the source location of an error."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def first_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    """Return the first line of an error that points at a line of the calling file."""
    assert Path(sys._getframe(1).f_code.co_filename).name in str(error.value)
    return str(error.value).splitlines()[0]


def error_line(kind: type[BaseException], call: Callable[[], object]) -> str:
    """Return the first line of the error of a call, which points at a line of the file."""
    with pytest.raises(kind) as caught:
        call()
    assert Path(sys._getframe(1).f_code.co_filename).name in str(caught.value)
    return str(caught.value).splitlines()[0]


def assert_raises_exactly(wrong: Callable[[], Any], kind: type[BaseException], text: str) -> None:
    """Check that the call raises exactly this class of error with exactly this first line."""
    with pytest.raises(kind) as caught:
        wrong()
    assert type(caught.value) is kind
    assert str(caught.value).splitlines()[0] == text


def raw(x: Any) -> Any:
    """Return `x` as `Any`, so that tests can pass arguments that a type checker rejects."""
    return x

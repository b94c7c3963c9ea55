"""Assertions on the class, the first line and the source location of an error."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def first_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    """What an error says before it points at a line, which is one of the file that asks."""
    assert Path(sys._getframe(1).f_code.co_filename).name in str(error.value)
    return str(error.value).splitlines()[0]


def refused(kind: type[BaseException], call: Callable[[], object]) -> str:
    """The first line of the error that a call raises, which points at a line of the file."""
    with pytest.raises(kind) as caught:
        call()
    assert Path(sys._getframe(1).f_code.co_filename).name in str(caught.value)
    return str(caught.value).splitlines()[0]


def assert_refused(wrong: Callable[[], Any], kind: type[BaseException], text: str) -> None:
    """The call raises an error of exactly this kind, whose first line is exactly this text."""
    with pytest.raises(kind) as caught:
        wrong()
    assert type(caught.value) is kind
    assert str(caught.value).splitlines()[0] == text


def odd(x: Any) -> Any:
    """What a type checker would not let through."""
    return x

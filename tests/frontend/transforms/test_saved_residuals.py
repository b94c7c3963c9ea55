"""`print_saved_residuals`: the values that reverse mode saves, with their origins."""

from typing import Any

import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.ad_checkpoint import checkpoint_name, print_saved_residuals
from shardir.frontend.errors import NotAnArrayError
from tests.error_assertions import assert_raises_exactly

CAPTURED = snp.ones(3)


def layer(w: Any, x: Any, *, scale: Any) -> Any:
    h = w @ x
    h = checkpoint_name(snp.sin(h), "waves")
    return (h * scale * CAPTURED).sum()


OPERANDS: Any = ({"w": snp.ones((3, 4))}, snp.ones(4))
START = layer.__code__.co_firstlineno
FILE = "tests/frontend/transforms/test_saved_residuals.py"


def printed(f: Any, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_saved_residuals(
        lambda w, x, scale: f(w["w"], x, scale=scale), *OPERANDS, scale=snp.ones(3)
    )
    return capsys.readouterr().out.splitlines()


def test_each_line_states_type_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(layer, capsys) == [
        "f32[3] from a captured value",
        "f32[3, 4] from the argument w.w",
        "f32[4] from the argument x",
        "f32[3] from the argument scale",
        f"f32[3] output of dot from {FILE}:{START + 1}",
        f"f32[3] named 'waves' from {FILE}:{START + 2}",
    ]
    assert printed(sd.checkpoint(layer), capsys) == [
        "f32[3] from a captured value",
        "f32[3, 4] from the argument w.w",
        "f32[4] from the argument x",
        "f32[3] from the argument scale",
    ]


def test_it_prints_inside_of_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    sd.jit(lambda x: print_saved_residuals(snp.sin, x))(1.0)
    assert capsys.readouterr().out == "f32[] from the argument x\n"


def test_arguments_are_arrays() -> None:
    assert_raises_exactly(
        lambda: print_saved_residuals(lambda x: x, "text"),
        NotAnArrayError,
        "print_saved_residuals of lambda takes arrays, and x is 'text' of type str; let the "
        "function capture it, for example in a lambda",
    )

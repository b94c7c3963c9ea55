"""Loops and branches without results execute for their effects."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax
from shardir.debug import callback

X = np.arange(4, dtype=np.float32)


def note(seen: list[float], x: Any) -> None:
    callback(lambda v: seen.append(float(v)), x)


def by_cond(seen: list[float], x: Any) -> None:
    lax.cond(x[1] == 1, lambda: note(seen, x[1]), lambda: None)
    lax.cond(x[1] == 2, lambda: note(seen, x[1]), lambda: None)
    note(seen, x[2])


def by_switch(seen: list[float], x: Any) -> None:
    index = x[1].astype("int32")
    lax.switch(index, [lambda: None, lambda: note(seen, x[1]), lambda: note(seen, x[3])])
    note(seen, x[2])


def by_scan(seen: list[float], x: Any) -> None:
    def body(carry: None, row: Any) -> tuple[None, None]:
        note(seen, row)
        return None, None

    lax.scan(body, None, x[1:3])


def by_nothing(seen: list[float], x: Any) -> None:
    note(seen, x[1])
    lax.scan(lambda _, row: (None, None), None, x)
    lax.cond(x[1] == 1, lambda: None, lambda: None)
    note(seen, x[2])


@pytest.mark.parametrize("body", [by_cond, by_switch, by_scan, by_nothing])
@pytest.mark.parametrize(
    "wrap",
    [
        sd.jit,
        sd.checkpoint,
        lambda f: sd.grad(lambda x: f(x).sum()),
        lambda f: lambda x: sd.jvp(f, (x,), (x,))[1],
        lambda f: sd.hessian(lambda x: (f(x) ** 2).sum()),
    ],
)
def test_effects_execute_in_order(
    body: Callable[[list[float], Any], None], wrap: Callable[[Any], Any]
) -> None:
    seen: list[float] = []

    def run(x: Any) -> Any:
        body(seen, x)
        return x * 2

    np.asarray(sd.jit(wrap(run))(X))
    assert seen == [1.0, 2.0]


def test_control_flow_without_effects_is_removed() -> None:
    def run(x: Any) -> Any:
        by = x[1] == 1
        lax.cond(by, lambda: None, lambda: None)
        lax.scan(lambda _, row: (None, None), None, x)
        return x

    text = sd.jit(run).lower(X).compile().as_text()
    assert "case" not in text
    assert "scan" not in text

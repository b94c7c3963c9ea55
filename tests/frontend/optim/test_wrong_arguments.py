"""Errors of optimizers and schedules for arguments of unsupported types."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir
from shardir.errors import ShardirError
from shardir.frontend.errors import ArgumentError, StructureError
from tests.error_assertions import assert_raises_exactly

optim: Any = shardir.optim

X = np.ones(3, np.float32)
CASES: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (lambda: optim.scale(None), ArgumentError, "factor of scale is a number, got None"),
    (lambda: optim.clip("a"), ArgumentError, "max_delta of clip is a number, got 'a'"),
    (
        lambda: optim.clip_by_global_norm(None),
        ArgumentError,
        "max_norm of clip_by_global_norm is a number, got None",
    ),
    (lambda: optim.trace([1]), ArgumentError, "decay of trace is a number, got [1]"),
    (
        lambda: optim.scale_by_adam(b1=None),
        ArgumentError,
        "b1 of scale_by_adam is a number, got None",
    ),
    (
        lambda: optim.scale_by_rms(decay="a"),
        ArgumentError,
        "decay of scale_by_rms is a number, got 'a'",
    ),
    (
        lambda: optim.scale_by_root_of_squares(eps=None),
        ArgumentError,
        "eps of scale_by_root_of_squares is a number, got None",
    ),
    (
        lambda: optim.scale_by_lion(b2="a"),
        ArgumentError,
        "b2 of scale_by_lion is a number, got 'a'",
    ),
    (
        lambda: optim.add_decayed_weights(None),
        ArgumentError,
        "weight_decay of add_decayed_weights is a number, got None",
    ),
    (
        lambda: optim.scale_by_adam().update({"w": X}, (1, 2)),
        ArgumentError,
        "scale_by_adam got the state (1, 2); make one with its own init",
    ),
    (
        lambda: optim.scale_by_rms().update({"w": X}, 3),
        ArgumentError,
        "scale_by_rms got the state 3; make one with its own init",
    ),
    (
        lambda: optim.scale_by_schedule(3),
        StructureError,
        "scale_by_schedule takes a function, got 3",
    ),
    (lambda: optim.stateless(None), StructureError, "stateless takes a function, got None"),
    (
        lambda: optim.join_schedules(None, []),
        ArgumentError,
        "schedules of join_schedules are a list, got None",
    ),
    (
        lambda: optim.join_schedules([1, 2], [1]),
        StructureError,
        "join_schedules takes a function, got 1",
    ),
    (
        lambda: optim.join_schedules([len, len], 3),
        ArgumentError,
        "boundaries of join_schedules are a list, got 3",
    ),
    (
        lambda: optim.piecewise_constant_schedule(1.0, 3),
        ArgumentError,
        "piecewise_constant_schedule takes a dictionary from boundaries to scales, got 3",
    ),
    (
        lambda: optim.piecewise_constant_schedule(1.0, {"a": 3}),
        ArgumentError,
        "a boundary of a schedule is a number, got 'a'",
    ),
    (
        lambda: optim.linear_schedule(1.0, 2.0, X),
        ArgumentError,
        "transition_steps of a schedule is a real number, got float32[3]",
    ),
    (
        lambda: optim.exponential_decay(1.0, 10, None),
        ArgumentError,
        "decay_rate of a schedule is a number, got None",
    ),
    (
        lambda: optim.cosine_decay_schedule(1.0, 10, "a"),
        ArgumentError,
        "alpha of a schedule is a number, got 'a'",
    ),
    (
        lambda: optim.warmup_cosine_decay_schedule(0.0, X, 1, 2),
        ArgumentError,
        "peak_value is a real number, got float32[3]",
    ),
    (
        lambda: optim.apply_updates({"w": X}, {"w": "a"}),
        ArgumentError,
        "update of apply_updates is a number, got 'a'",
    ),
    (
        lambda: optim.sgd(np.array([True])),
        ArgumentError,
        "a learning rate is a number, got bool",
    ),
    (
        lambda: optim.scale(2.0).update({"w": "a"}, ()),
        ArgumentError,
        "updates are arrays in containers, got 'a'",
    ),
    (
        lambda: optim.scale_by_rms().update({"w": len}, optim.scale_by_rms().init({"w": X})),
        ArgumentError,
        "updates are arrays in containers, got <built-in function len>",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), CASES, ids=[text[:40] for *_, text in CASES])
def test_an_invalid_argument_has_an_exact_error(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert_raises_exactly(wrong, kind, text)

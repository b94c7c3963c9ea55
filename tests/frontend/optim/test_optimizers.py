"""Optimizers against their formulas, step by step."""

from typing import Any

import numpy as np
import pytest

from shardir import (
    NamedSharding,
    PartitionSpec,
    cpu_devices,
    device_put,
    enable_x64,
    grad,
    jit,
    make_mesh,
    optim,
)
from shardir.errors import ShardirError
from shardir.frontend.numpy import api as snp
from tests.error_assertions import first_line

PARAMS = {"w": np.array([1.0, -2.0]), "b": np.array(0.5)}
STEPS = 5


def gradients(step: int) -> dict[str, Any]:
    """Return gradients that depend on the step."""
    return {"w": np.array([0.3, -0.1]) * (step + 1), "b": np.float64(1 - 0.4 * step)}


def run(optimizer: Any) -> Any:
    """Return the parameters after several steps."""

    @jit
    def step(params: Any, state: Any, given: Any) -> Any:
        updates, after = optimizer.update(given, state, params)
        return optim.apply_updates(params, updates), after

    with enable_x64():
        params = {name: snp.asarray(value) for name, value in PARAMS.items()}
        state = optimizer.init(params)
        for i in range(STEPS):
            params, state = step(params, state, gradients(i))
    return params


def check(optimizer: Any, formula: Any, rtol: float = 1e-9) -> None:
    """Compare with `formula(p, gradients)`, evaluated in double precision for each parameter."""
    got = run(optimizer)
    for name, value in PARAMS.items():
        expected = formula(value, [gradients(i)[name] for i in range(STEPS)])
        np.testing.assert_allclose(got[name], expected, rtol=rtol, atol=1e-12, err_msg=name)


def test_sgd() -> None:
    check(optim.sgd(0.1), lambda p, gs: p - 0.1 * sum(gs))


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum(nesterov: bool) -> None:
    def formula(p: Any, gs: Any) -> Any:
        velocity = 0.0
        for g in gs:
            velocity = g + 0.9 * velocity
            p = p - 0.1 * (g + 0.9 * velocity if nesterov else velocity)
        return p

    check(optim.momentum(0.1, 0.9, nesterov), formula)
    check(optim.sgd(0.1, 0.9, nesterov), formula)


def adam(decay: float = 0.0, rate: Any = 0.1) -> Any:
    def formula(p: Any, gs: Any) -> Any:
        m = v = 0.0
        for t, g in enumerate(gs, start=1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            p = p - (rate(t - 1) if callable(rate) else rate) * (step + decay * p)
        return p

    return formula


def test_adam() -> None:
    check(optim.adam(0.1), adam())


def test_nadam() -> None:
    def formula(p: Any, gs: Any) -> Any:
        m = v = 0.0
        for t, g in enumerate(gs, start=1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            hat = 0.1 * g / (1 - 0.9**t) + 0.9 * m / (1 - 0.9 ** (t + 1))
            p = p - 0.1 * hat / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return p

    check(optim.adam(0.1, nesterov=True), formula)


def test_adamw() -> None:
    check(optim.adamw(0.1, weight_decay=0.01), adam(0.01))


def test_weight_decay_with_a_mask() -> None:
    mask = {"w": True, "b": False}
    for given in (mask, lambda params: mask):
        got = run(optim.adamw(0.1, weight_decay=0.01, mask=given))
        assert float(got["b"]) == float(run(optim.adam(0.1))["b"])
        assert float(got["w"][0]) != float(run(optim.adam(0.1))["w"][0])


def test_a_schedule_counts_steps() -> None:
    schedule = optim.linear_schedule(0.1, 0.0, 10)
    # The step count is an i32; its quotients are f32 as in JAX, also with `enable_x64`.
    check(optim.adam(schedule), adam(rate=lambda t: 0.1 * (1 - t / 10)), rtol=1e-7)


def test_rmsprop() -> None:
    def formula(p: Any, gs: Any) -> Any:
        v = 0.0
        for g in gs:
            v = 0.9 * v + 0.1 * g * g
            p = p - 0.1 * g / np.sqrt(v + 1e-8)
        return p

    check(optim.rmsprop(0.1), formula)


def test_adagrad() -> None:
    def formula(p: Any, gs: Any) -> Any:
        total = 0.1
        for g in gs:
            total = total + g * g
            p = p - 0.1 * g / np.sqrt(total + 1e-7)
        return p

    check(optim.adagrad(0.1), formula)


def test_lion() -> None:
    def formula(p: Any, gs: Any) -> Any:
        m = 0.0
        for g in gs:
            p = p - 0.1 * (np.sign(0.1 * g + 0.9 * m) + 0.001 * p)
            m = 0.99 * m + 0.01 * g
        return p

    check(optim.lion(0.1), formula)


def test_clipping() -> None:
    check(optim.chain(optim.clip(0.2), optim.sgd(1.0)), lambda p, gs: p - sum(
        np.clip(g, -0.2, 0.2) for g in gs
    ))  # fmt: skip
    given = {"a": snp.array([3.0]), "b": snp.array([[4.0]])}
    assert float(optim.global_norm(given)) == 5
    for limit, factor in ((1.0, 0.2), (10.0, 1.0)):
        clip = optim.clip_by_global_norm(limit)
        clipped, _ = clip.update(given, clip.init(given))
        np.testing.assert_allclose(clipped["b"], [[4 * factor]], rtol=1e-6)


def test_schedules() -> None:
    def values(schedule: Any, *steps: int) -> list[float]:
        return [round(float(schedule(step)), 6) for step in steps]

    assert values(optim.constant_schedule(0.5), 0, 9) == [0.5, 0.5]
    assert values(optim.linear_schedule(1.0, 0.0, 4, 1), 0, 1, 3, 9) == [1, 1, 0.5, 0]
    assert values(optim.polynomial_schedule(1.0, 0.0, 2, 4), 2) == [0.25]
    assert values(optim.exponential_decay(1.0, 2, 0.25), 0, 1, 2) == [1, 0.5, 0.25]
    assert values(optim.exponential_decay(1.0, 2, 0.25, staircase=True), 1, 3) == [1, 0.25]
    assert values(optim.exponential_decay(1.0, 2, 0.25, end_value=0.1), 8) == [0.1]
    assert values(optim.cosine_decay_schedule(2.0, 4, 0.5), 0, 2, 4, 9) == [2, 1.5, 1, 1]
    steps = optim.piecewise_constant_schedule(1.0, {2: 0.5, 4: 0.1})
    assert values(steps, 1, 2, 5) == [1, 0.5, 0.05]
    warm = optim.warmup_cosine_decay_schedule(0.0, 1.0, 2, 6)
    assert values(warm, 0, 1, 2, 4, 6) == [0, 0.5, 1, 0.5, 0]


def test_invalid_arguments_are_errors() -> None:
    with pytest.raises(ShardirError) as error:
        optim.linear_schedule(1.0, 0.0, 0)
    assert first_line(error) == "transition_steps of a schedule is 0; it must be at least 1"
    with pytest.raises(ShardirError) as error:
        optim.join_schedules([optim.constant_schedule(1)], [3])
    assert first_line(error) == (
        "join_schedules got 1 schedules and 1 boundaries; give one boundary between each two "
        "schedules"
    )
    decay = optim.add_decayed_weights(0.1)
    with pytest.raises(ShardirError) as error:
        decay.update({}, decay.init({}))
    assert first_line(error) == (
        "add_decayed_weights needs the parameters too; call update(gradients, state, params)"
    )
    with pytest.raises(ShardirError) as error:
        optim.sgd(0.1).update(PARAMS, ())
    assert first_line(error) == (
        "a chain of 2 transformations got a state of 0; make one with its own init"
    )


def test_the_state_has_the_shardings_of_the_parameters() -> None:
    with cpu_devices(4):
        cut = NamedSharding(make_mesh((4,), ("x",)), PartitionSpec("x"))
        params = {"w": device_put(snp.arange(8.0), cut)}
        optimizer = optim.adam(0.1)
        state = optimizer.init(params)
        assert state[0].mu["w"].sharding == cut

        @jit
        def step(params: Any, state: Any) -> Any:
            slopes = grad(lambda p: snp.sum(p["w"] ** 2))(params)
            updates, state = optimizer.update(slopes, state, params)
            return optim.apply_updates(params, updates), state

        params, state = step(params, state)
        assert params["w"].sharding == cut
        assert state[0].nu["w"].sharding == cut


def test_an_invalid_state_is_an_error() -> None:
    with pytest.raises(ShardirError) as error:
        optim.adam(1e-3).update({"a": np.ones(3, np.float32)}, None)
    assert "transformations got the state None; make one with its own init" in str(error.value)

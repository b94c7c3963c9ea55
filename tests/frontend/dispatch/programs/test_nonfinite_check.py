"""`debug_nans` and `debug_infs` name the first operation that makes NaN or an infinity."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.numpy as jnp
from shardir.frontend.errors import InfinityError, NanError
from shardir.sharding import NamedSharding, PartitionSpec as P

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


@pytest.fixture(autouse=True)
def debug_nans() -> Iterator[None]:
    with shardir.config(debug_nans=True):
        yield


def line_of(text: str) -> int:
    (number,) = (i for i, line in enumerate(LINES, 1) if line.endswith(f"# {text}"))
    return number


def logarithm(x: Any) -> Any:
    y = jnp.exp(x) - 2
    z = jnp.log(y)  # the logarithm
    return z.sum() * 2


X = np.array([-1.0, 2.0], np.float32)


def test_the_error_names_the_operation_and_its_line() -> None:
    with pytest.raises(NanError) as caught:
        shardir.jit(logarithm)(X)
    line = line_of("the logarithm")
    assert str(caught.value).splitlines() == [
        "the result of logarithm has NaN; the first operation that makes NaN is "
        "%z = log(%y) : f32[2]",
        f"  --> tests/frontend/dispatch/programs/test_nonfinite_check.py:{line}:9",
        "   |",
        f"{line} | z = jnp.log(y)  # the logarithm",
        "   |     ^",
    ]
    assert isinstance(caught.value, FloatingPointError)


def test_a_sharded_program() -> None:
    mesh = shardir.make_mesh((2,), ("data",))
    x = shardir.device_put(X, NamedSharding(mesh, P("data")))
    with pytest.raises(NanError, match="makes NaN is %z = log"):
        shardir.jit(logarithm)(x)


def test_an_eager_function() -> None:
    x = jnp.asarray(X)
    for _ in range(3):
        with pytest.raises(NanError, match="the result of log has NaN; the first operation"):
            jnp.log(x)


def test_an_operation_inside_of_a_loop() -> None:
    def body(i: Any, x: Any) -> Any:
        return jnp.sqrt(x - 1)

    with pytest.raises(NanError, match=r"makes NaN is %\w+ = sqrt\("):
        shardir.jit(lambda x: shardir.lax.fori_loop(0, 5, body, x))(2.0)


def test_an_operation_inside_of_shard_map() -> None:
    mesh = shardir.make_mesh((2,), ("data",))
    f = shardir.shard_map(lambda x: jnp.log(x), mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    with pytest.raises(NanError, match=r"makes NaN is %\w+ = log\(%[\w.]+\) : f32\[1\]\n"):
        shardir.jit(f)(X)


def test_an_argument_with_nan() -> None:
    with pytest.raises(NanError) as caught:
        shardir.jit(lambda x: x + 1)(np.float32("nan"))
    first = str(caught.value).splitlines()[0]
    assert first == "the result of lambda has NaN, and so has the argument %x"


def test_a_donated_argument_and_a_gradient() -> None:
    with pytest.raises(NanError, match="makes NaN is %z = log"):
        shardir.jit(logarithm, donate_argnums=0)(jnp.asarray(X))
    with pytest.raises(NanError):
        shardir.grad(logarithm)(X)


def test_every_call_of_a_function_with_donated_arguments() -> None:
    f = shardir.jit(lambda x: jnp.log(x), donate_argnums=0)
    for _ in range(3):
        np.testing.assert_array_equal(f(jnp.ones(4)), np.zeros(4))
    with pytest.raises(NanError, match=r"makes NaN is %\w+ = log"):
        f(-jnp.ones(4))


def test_a_captured_array() -> None:
    captured = jnp.asarray(X)
    with pytest.raises(NanError, match=r"makes NaN is %\w+ = log"):
        shardir.jit(lambda x: jnp.log(x + captured))(np.float32(0))


def test_results_without_nan() -> None:
    f = shardir.jit(lambda x: (x * 2, jnp.argmax(x)))
    for _ in range(5):
        assert f(X)[1] == 1


def test_programs_compiled_before_are_not_used() -> None:
    f = shardir.jit(logarithm)
    with shardir.config(debug_nans=False):
        for _ in range(5):
            assert np.isnan(f(X))
    with pytest.raises(NanError):
        f(X)
    with shardir.config(debug_nans=False):
        assert np.isnan(f(X))


def test_one_of_several_results() -> None:
    def f(x: Any) -> Any:
        return jnp.arange(2), x, jnp.asarray([1, 2], "int4"), x - x, x > 1

    with pytest.raises(NanError, match=r"^result 3 of f has NaN; the first operation that makes"):
        shardir.jit(f)(np.array([1.0, np.inf], np.float32))


INF = np.array([1.0, np.inf], np.float32)


def reciprocal(x: Any) -> Any:
    y = 1 / x  # the reciprocal
    return y * 2


def test_the_error_names_the_operation_that_makes_an_infinity() -> None:
    with shardir.config(debug_nans=False, debug_infs=True):
        assert np.isnan(shardir.jit(logarithm)(X))
        with pytest.raises(InfinityError) as caught:
            shardir.jit(reciprocal)(np.array([1.0, 0.0], np.float32))
    line = line_of("the reciprocal")
    indent = " " * len(str(line))
    assert str(caught.value).splitlines() == [
        "the result of reciprocal has an infinity; the first operation that makes an infinity is "
        "%y = div(%0, %x) : f32[2]",
        f"{indent}--> tests/frontend/dispatch/programs/test_nonfinite_check.py:{line}:9",
        f"{indent} |",
        f"{line} | y = 1 / x  # the reciprocal",
        f"{indent} |     ^",
    ]
    assert isinstance(caught.value, FloatingPointError)


def test_infinities_inside_of_a_program_are_no_error() -> None:
    with shardir.debug_infs():
        masked = shardir.jit(lambda x: jnp.where(x > 1, x, -np.inf).max())
        assert masked(jnp.asarray([1.0, 2.0])) == 2


def test_an_infinity_in_shard_map_and_in_an_argument() -> None:
    mesh = shardir.make_mesh((2,), ("data",))
    f = shardir.shard_map(reciprocal, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    with shardir.debug_infs():
        with pytest.raises(InfinityError, match=r"makes an infinity is %\w+ = div\("):
            shardir.jit(f)(np.array([1.0, 0.0], np.float32))
        with pytest.raises(InfinityError) as caught:
            shardir.jit(lambda x: x + 1)(INF)
    first = str(caught.value).splitlines()[0]
    assert first == "the result of lambda has an infinity, and so has the argument %x"


def test_both_settings_find_their_own_numbers() -> None:
    with shardir.debug_infs():
        with pytest.raises(NanError, match="the first operation that makes NaN is"):
            shardir.jit(lambda x: (x - 1, x - x))(INF)
        with pytest.raises(InfinityError, match=r"^result 0 of lambda has an infinity, and so"):
            shardir.jit(lambda x: (x - 1, x > 1))(INF)
    f = shardir.jit(lambda x: x * 2)
    assert f(INF)[1] == np.inf
    with shardir.debug_infs(), pytest.raises(InfinityError):
        f(INF)

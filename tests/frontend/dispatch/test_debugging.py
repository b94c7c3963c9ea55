"""Printing, callbacks and inspection of shardings inside of programs."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from shardir import (
    NamedSharding,
    PartitionSpec,
    ShapeDtypeStruct,
    checkpoint,
    cpu_devices,
    debug,
    device_put,
    effects_barrier,
    grad,
    io_callback,
    jit,
    jvp,
    lax,
    make_mesh,
    pure_callback,
    vmap,
)
from shardir.errors import ShardirError
from shardir.frontend.errors import (
    ArgumentError,
    NotAnArrayError,
    OutsideTraceError,
    ShardingError,
)
from shardir.frontend.numpy import api as snp
from shardir.interpret.interpreter import run
from shardir.text.parser import parse
from tests.error_assertions import assert_raises_exactly, first_line, raw

NUMBER = ShapeDtypeStruct((), np.float32)


def loud(x: Any) -> Any:
    debug.print("x = {x:.1f}", x=x)
    return snp.sin(x)


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        (lambda: loud(1.0), "1.0"),
        (lambda: jit(loud)(1.0), "1.0"),
        (lambda: grad(loud)(2.0), "2.0"),
        (lambda: jvp(loud, (2.0,), (1.0,)), "2.0"),
        (lambda: vmap(loud)(snp.arange(3.0)), "0.0 1.0 2.0"),
        (lambda: vmap(grad(loud))(snp.arange(2.0)), "0.0 1.0"),
        (lambda: grad(checkpoint(loud))(3.0), "3.0"),
        (lambda: lax.scan(lambda c, x: (loud(x), None), 0.0, snp.arange(2.0)), "0.0 1.0"),
        (lambda: lax.cond(True, loud, lambda x: x, 5.0), "5.0"),
        (lambda: lax.while_loop(lambda x: x < 2, lambda x: x + loud(x) ** 0, 0.0), "0.0 1.0"),
    ],
)
def test_print_formats_arguments(
    call: Callable[[], Any], lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call()
    assert capsys.readouterr().out == "".join(f"x = {line}\n" for line in lines.split())


def test_a_sharded_program_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    with cpu_devices(8):
        mesh = make_mesh((4, 2), ("a", "b"))
        x = device_put(snp.arange(8), NamedSharding(mesh, PartitionSpec("a")))

        @jit
        def f(x: Any) -> Any:
            debug.print("{} of {}", snp.sum(x), x)
            return x

        f(x)
    assert capsys.readouterr().out == "28 of [0 1 2 3 4 5 6 7]\n"


def test_callbacks_get_containers_and_static_values() -> None:
    seen: list[Any] = []
    jit(lambda x: debug.callback(lambda *a, **k: seen.append((a, k)), {"x": x}, "y", z=x))(1)
    ((args, options),) = seen
    assert args == ({"x": 1}, "y")
    assert options == {"z": 1}


def test_callbacks_may_capture_values() -> None:
    def f(x: Any, method: Any = None) -> Any:
        return pure_callback(np.sin, NUMBER, x, vmap_method=method) * 2

    expected = 2 * np.sin(np.arange(3.0))
    np.testing.assert_allclose(jit(f)(1.0), expected[1], rtol=1e-6)
    for method in ("sequential", "broadcast_all", "expand_dims"):
        many = vmap(f, (0, None))(snp.arange(3.0), method)
        np.testing.assert_allclose(many, expected, rtol=1e-6)
    with pytest.raises(ShardirError) as error:
        vmap(f)(snp.arange(3.0))
    assert first_line(error) == (
        "sin is called with one example at a time; state with vmap_method= how it is to be called: "
        "'sequential', 'expand_dims' or 'broadcast_all'"
    )
    with pytest.raises(ShardirError) as error:
        grad(f)(1.0)
    assert first_line(error) == (
        "%0 = pure-callback has no derivative; define the derivative of a function that calls it "
        "with custom_jvp or custom_vjp"
    )


def test_effects_execute_once_and_in_order() -> None:
    seen: list[float] = []

    def note(x: Any) -> Any:
        seen.append(float(x))
        return x + 1

    @jit
    def f(x: Any) -> Any:
        y = io_callback(note, NUMBER, x)
        io_callback(note, NUMBER, y)
        return y

    assert float(f(1.0)) == 2
    assert seen == [1, 2]


def test_results_of_callbacks_are_checked() -> None:
    with pytest.raises(ShardirError) as error:
        jit(lambda x: pure_callback(lambda x: np.ones(2), NUMBER, x))(1.0)
    assert str(error.value) == (
        "lambda returned float32[2], and f32[] is declared; convert the result, or declare its type"
    )
    with pytest.raises(ShardirError) as error:
        pure_callback(np.sin, "f32", 1.0)
    assert first_line(error) == (
        "a result of pure_callback is declared as 'f32' of type str, which has no shape and dtype; "
        "use a ShapeDtypeStruct"
    )
    with pytest.raises(ShardirError) as error:
        pure_callback(np.sin)
    assert first_line(error) == (
        "pure_callback of sin needs the types of its results; pass an object with a shape and a "
        "dtype for each array, such as a ShapeDtypeStruct"
    )


def test_text_shows_a_callback_by_its_name() -> None:
    module = parse(
        'func @f(\n  %x: f32[],\n) -> (f32[]) {\n  %y = pure-callback(%x, function="g") : f32[]\n'
        "  return %y\n}\n"
    )
    with pytest.raises(ShardirError) as error:
        run(module, [np.float32(1)])
    assert str(error.value) == (
        "'g' is a Python function, of which the text of a program contains only the name; run "
        "the traced program instead of its text"
    )


def test_log_records_the_line_of_the_call(caplog: pytest.LogCaptureFixture) -> None:
    def f(x: Any) -> Any:
        debug.log("x = {}", x)
        return x

    with caplog.at_level(logging.INFO, "shardir.debug"):
        jit(vmap(f))(snp.arange(2.0))
        effects_barrier()
    expected = f.__code__.co_firstlineno + 1
    found = [
        (each.name, each.levelno, each.filename, each.lineno, each.getMessage())
        for each in caplog.records
    ]
    file = "test_debugging.py"
    assert found == [
        ("shardir.debug", logging.INFO, file, expected, f"x = {x}") for x in ("0.0", "1.0")
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "shardir.debug"):
        f(1.0)
        effects_barrier()
    assert not caplog.records


def test_options_of_print_and_log(capsys: pytest.CaptureFixture[str]) -> None:
    debug.print("{x}", x=1, y=2, skip_format_check=True)
    effects_barrier()
    assert capsys.readouterr().out == "1\n"
    for name in ("print", "log"):
        call = getattr(debug, name)
        assert_raises_exactly(
            partial(call, "{}", 1, partitioned=True),
            ArgumentError,
            f"debug.{name} takes whole arrays; call it inside of shard_map for the shards of each "
            "device, without partitioned=True",
        )


def test_formats_are_checked_when_they_are_traced() -> None:
    with pytest.raises(ShardirError) as error:
        jit(lambda x: debug.print("{} {}", x))(1.0)
    assert first_line(error) == (
        "the format '{} {}' of debug.print does not fit its arguments: no argument 1"
    )
    with pytest.raises(ShardirError) as error:
        jit(lambda x: debug.print("{x}", x=x, y=x))(1.0)
    assert first_line(error) == (
        "the format '{x}' of debug.print does not use argument y; write {} for each, and use "
        "f-strings only for values known while tracing"
    )


def test_shardings_are_inspected_inside_of_transformations() -> None:
    seen: list[Any] = []
    with cpu_devices(8):
        mesh = make_mesh((4, 2), ("a", "b"))
        cut = NamedSharding(mesh, PartitionSpec("a", "b"))
        x = device_put(snp.ones((8, 4)), cut)

        def f(x: Any) -> Any:
            y = snp.sin(x)
            debug.inspect_array_sharding(y, callback=seen.append)
            return snp.sum(y * y)

        debug.inspect_array_sharding(x, callback=seen.append)
        jit(f)(x)
        grad(f)(x)
        jit(vmap(f))(x)
        jit(lambda x: lax.scan(lambda c, row: (c, f(row)), 0, x))(x)
    assert seen[:4] == [cut] * 4
    assert seen[4].spec == PartitionSpec("b")


def test_shardings_of_traced_arrays_are_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with cpu_devices(2):
        mesh = make_mesh((2,), ("a",))
        x = device_put(snp.ones(8), NamedSharding(mesh, PartitionSpec("a")))
        debug.visualize_array_sharding(x, use_color=False)
        drawn = capsys.readouterr().out

        def f(x: Any) -> Any:
            debug.visualize_array_sharding(x, use_color=False)
            return x

        jit(f)(x)
    assert "CPU 1" in drawn
    assert capsys.readouterr().out == drawn


def test_breakpoint_raises_an_error() -> None:
    with pytest.raises(ShardirError) as error:
        debug.breakpoint()
    assert first_line(error) == (
        "there is no debugger inside of a program; print values with debug.print or "
        "debug.callback, or run the function without jit under Python's own breakpoint()"
    )


def test_errors_of_arguments() -> None:
    def ignore(_: object) -> None:
        pass

    assert_raises_exactly(
        lambda: debug.print(raw(3)), ArgumentError, "debug.print takes a format first, got 3"
    )
    for call in (
        lambda: debug.inspect_array_sharding(3.0, callback=ignore),
        lambda: jit(lambda x: debug.inspect_array_sharding(3.0, callback=ignore))(1.0),
    ):
        assert_raises_exactly(
            call, NotAnArrayError, "inspect_array_sharding takes an array, got 3.0 of type float"
        )
    assert_raises_exactly(
        lambda: debug.visualize_array_sharding(3.0),
        ShardingError,
        "a value of type float is not placed on devices, so there is nothing to draw; place it "
        "with device_put",
    )
    escaped: list[Any] = []
    jit(escaped.append)(1.0)
    assert_raises_exactly(
        lambda: debug.inspect_array_sharding(escaped[0], callback=ignore),
        OutsideTraceError,
        "a traced value is used outside of a trace; do it inside of jit",
    )


@pytest.mark.parametrize("kind", ["scan", "while"])
def test_a_loop_whose_results_are_unused_runs_its_callbacks(kind: str) -> None:
    seen = list[float]()

    def step(c: Any) -> Any:
        debug.callback(lambda value: seen.append(float(value)), c)
        return c + 1

    @jit
    def f(x: Any) -> Any:
        if kind == "scan":
            lax.scan(lambda c, _: (step(c), None), x, None, length=3)
        else:
            lax.while_loop(lambda c: c < 3, step, x)
        return x * 2

    assert f(np.float32(0)) == 0
    effects_barrier()
    assert sorted(seen) == [0, 1, 2]

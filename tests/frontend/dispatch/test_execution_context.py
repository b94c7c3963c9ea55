"""Context managers that select the device and switch compilation off."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shardir import jit, numpy as snp
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.execution_context import (
    check_compiler_options,
    default_device,
    disable_jit,
)
from shardir.frontend.errors import ArgumentError
from shardir.frontend.shardings.devices import devices
from tests.error_assertions import raw


def test_uncommitted_arrays_are_on_the_default_device() -> None:
    last = devices()[-1]
    double = jit(lambda x: x * 2)
    with default_device(last):
        x = snp.ones(3)
        assert x.devices() == (x + 1).devices() == double(x).devices() == {last}
        assert not x.committed
        with default_device(None):
            assert snp.ones(3).devices() == {devices()[0]}
        assert device_put(1.0, devices()[1]).devices() == {devices()[1]}
    assert snp.ones(3).devices() == double(x).devices() == {devices()[0]}
    np.testing.assert_array_equal(double(x), [2, 2, 2])


def test_a_platform_selects_its_first_device() -> None:
    with default_device(devices()[1]), default_device("cpu"):
        assert snp.ones(3).devices() == {devices()[0]}


def test_the_default_device_must_be_a_device() -> None:
    with pytest.raises(ArgumentError) as caught, default_device(3):  # type: ignore[arg-type]
        pass
    assert str(caught.value).partition("\n")[0] == (
        "default_device takes a device, a platform's name or None, got 3"
    )


def test_options_of_other_compilers_are_errors() -> None:
    easy = jit(lambda x: x + 1, compiler_options={"optimization_level": 3})
    assert easy(1) == 2
    with pytest.raises(ArgumentError) as caught:
        jit(easy)(1)
    assert str(caught.value).partition("\n")[0] == (
        "lambda has compiler_options and is called inside of a program, which is compiled as one; "
        "give them to its jit"
    )
    with pytest.raises(ArgumentError) as caught:
        check_compiler_options({"xla_dump_to": "here"}, "f")
    assert str(caught.value).partition("\n")[0] == (
        "compiler_options of f has 'xla_dump_to', which is unknown; the options of XLA that are "
        "accepted, without effect, are exec_time_optimization_effort, memory_fitting_effort, "
        "memory_fitting_level, optimization_level"
    )


def test_disable_jit_calls_the_function_directly() -> None:
    seen: list[object] = []

    @jit
    def double(x: Any) -> Any:
        seen.append(x)
        return x * 2

    double(snp.ones(2))
    with disable_jit():
        np.testing.assert_array_equal(double(np.ones(2)), [2, 2])
        assert isinstance(seen[-1], np.ndarray)
        with disable_jit(False):
            double(snp.ones(2))
    assert len(seen) == 2


def test_a_program_for_one_device() -> None:
    first, last = devices()[0], devices()[-1]
    double = jit(lambda x, *, y: x * 2 + y, device=last)
    for x in (snp.ones(3), device_put(np.ones(3, np.float32), first)):
        found = double(x, y=1)
        assert found.devices() == {last}
        np.testing.assert_array_equal(found, [3, 3, 3])
    with pytest.raises(ArgumentError) as caught:
        jit(abs, device=last, backend="cpu")
    assert str(caught.value).partition("\n")[0] == (
        "jit of abs has a device, and shardings or a backend; choose one"
    )


def test_arguments_that_are_not_functions_are_errors() -> None:
    def numbers(x: object) -> Iterator[object]:
        yield x

    def message(fun: object) -> str:
        with pytest.raises(ArgumentError) as caught:
            jit(fun)  # type: ignore[call-overload]
        return str(caught.value).partition("\n")[0]

    assert message(numbers) == (
        "jit takes a function that returns its results, and numbers yields them; return a tuple "
        "of them"
    )
    assert message(staticmethod(abs)) == (
        "jit takes a function, got a staticmethod; write @staticmethod above @jit"
    )


def test_compiler_options_are_a_dictionary() -> None:
    with pytest.raises(ArgumentError) as caught:
        jit(lambda x: x + 1, compiler_options=raw(["optimization_level"]))(1)
    assert str(caught.value).partition("\n")[0] == (
        "compiler_options of lambda are a dictionary, got ['optimization_level']"
    )
    assert jit(jit(lambda x: x + 1, compiler_options={}))(1) == 2


def test_a_backend_determines_the_device_of_programs_without_shardings() -> None:
    double = jit(lambda x: x * 2, backend="cpu")
    with default_device(devices()[3]):
        assert double(1.0).devices() == {devices()[0]}
        placed = device_put(snp.ones(3), devices()[2])
        assert double(placed).devices() == {devices()[2]}

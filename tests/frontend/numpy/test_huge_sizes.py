"""Huge sizes in arguments are errors that name the call, and do not hang."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.errors import OutOfMemoryError

CONSTANTS: dict[str, Callable[[], Any]] = {
    "pad": lambda: snp.pad(snp.ones(4), 10**14, mode="linear_ramp"),
    "repeat": lambda: snp.repeat(snp.ones(4), np.array([10**14] * 4)),
}
HUGE = 2**45
HUGE_VIEW = np.broadcast_to(np.float32(1), (HUGE,))
RESULTS: dict[str, Callable[[], Any]] = {
    "zeros": lambda: snp.zeros(HUGE),
    "empty": lambda: snp.empty(HUGE),
    "ones": lambda: snp.ones(HUGE),
    "zeros_like": lambda: snp.zeros_like(sd.ShapeDtypeStruct((HUGE,), "float32")),
    "asarray": lambda: snp.asarray(HUGE_VIEW),
    "array": lambda: snp.array(HUGE_VIEW),
    "device_put": lambda: sd.device_put(HUGE_VIEW),
    "device_put with a sharding": lambda: sd.device_put(
        HUGE_VIEW, sd.NamedSharding(sd.make_mesh((2,), "x"), sd.P("x"))
    ),
    "jit": lambda: sd.jit(lambda: snp.ones(HUGE))(),
    "compiled": lambda: sd.jit(lambda: snp.ones(HUGE)).lower().compile()(),
    "vmap": lambda: sd.vmap(lambda x: snp.ones(HUGE) * x)(snp.ones(4)),
    "linspace": lambda: snp.linspace(0, 1, 2**53),
    "wrap": lambda: snp.pad(snp.ones(4), 10**14, mode="wrap"),
    "dilated image": lambda: lax.conv_general_dilated(
        snp.ones((1, 1, 8)), snp.ones((1, 1, 3)), (1,), [(0, 0)], lhs_dilation=(10**30,)
    ),
}
UNADDRESSABLE: dict[str, Callable[[], Any]] = {
    "linspace": lambda: snp.linspace(0, 1, 2**62),
    "zeros of one dimension": lambda: snp.zeros(2**63),
    "zeros": lambda: snp.zeros((2**62, 4), "int8"),
    "eye": lambda: snp.eye(2**55),
    "tile": lambda: snp.tile(snp.ones(4), 2**62),
    "repeat": lambda: snp.repeat(snp.ones(4), 2, total_repeat_length=2**70),
    "jit": lambda: sd.jit(lambda x: snp.broadcast_to(x, (2**62,)) + 1)(1.0),
    "jit of a number beyond floats": lambda: sd.jit(lambda x: snp.broadcast_to(x, (10**400,)) + 1)(
        1.0
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_error_names_the_call_whose_constants_do_not_fit(name: str) -> None:
    with pytest.raises(
        OutOfMemoryError,
        match=rf"^the host has no memory for the constants of {name}: Unable to allocate .*; "
        r"check the sizes in the arguments\n  --> .*test_huge_sizes\.py:\d+:\d+",
    ):
        CONSTANTS[name]()


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_exceed_memory_are_errors_with_the_line_of_the_call(name: str) -> None:
    with pytest.raises(
        OutOfMemoryError,
        match=r"^no memory for (more than )?\d+\.\d [TP]iB: [^\n]*\n"
        r" +--> .*test_huge_sizes\.py:\d+:\d+\n",
    ) as caught:
        RESULTS[name]()
    assert str(caught.value).count(" --> ") == 1


@pytest.mark.parametrize("name", UNADDRESSABLE)
def test_programs_that_exceed_the_address_space_are_errors(name: str) -> None:
    with pytest.raises(
        OutOfMemoryError,
        match=r"^no memory for (more than )?\d+\.\d PiB: a process can address at most 64\.0 PiB; "
        "compute on smaller arrays",
    ):
        UNADDRESSABLE[name]()


@pytest.mark.parametrize("shape", [(2**40, 2**40), (2**63,), (1, 2**400)])
def test_values_that_no_loop_can_count_are_errors(shape: tuple[int, ...]) -> None:
    """Nothing stores the elements of a constant that is summed."""
    extents = ", ".join(map(str, shape))
    with pytest.raises(OutOfMemoryError) as caught:
        sd.jit(lambda: snp.ones(shape).sum())()
    assert str(caught.value).splitlines()[0] == (
        f"a loop cannot compute f32[{extents}]: it has more than 9223372036854775807 elements; "
        "compute on smaller arrays"
    )


@pytest.mark.parametrize("widths", [(0, 0), (1, 2), (7, 5), (30, 31), (100, 0)])
def test_wrapped_padding_repeats_the_array_as_numpy_does(widths: tuple[int, int]) -> None:
    for shape in [(3,), (2, 3), (4, 1)]:
        x = np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)
        got = snp.pad(x, widths, mode="wrap")
        np.testing.assert_array_equal(got, np.pad(x, widths, mode="wrap"))


@pytest.mark.parametrize("dilation", [1000, 100_000])
def test_convolutions_of_strongly_dilated_images_are_correct(dilation: int) -> None:
    x, w = np.arange(1.0, 9.0, dtype=np.float32), np.array([1, 2, 4], np.float32)
    got = lax.conv_general_dilated(
        x[None, None], w[None, None], (1,), [(0, 0)], lhs_dilation=(dilation,)
    )
    dilated = np.zeros(7 * dilation + 1, np.float32)
    dilated[::dilation] = x
    np.testing.assert_array_equal(got[0, 0], np.correlate(dilated, w, "valid"))

"""What is done on machines that lack an instruction, tested on those that have it."""

import math
from collections.abc import Iterator
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

from shardir.backends.cpu.codegen import narrow_floats as conversions
from shardir.backends.cpu.codegen.target import MachineDescription, host_machine
from shardir.backends.cpu.kernels.math import library, lookup_tables, vector_arithmetic
from shardir.backends.cpu.kernels.math.hyperbolic_tangent import PIECE_BASES
from shardir.backends.cpu.kernels.math.inverse_trigonometric import PIECE_BASES as ARC_BASES
from tests.backends.cpu.kernels.math.accuracy import SINGLE, TRUTHS, errors, patterns
from tests.backends.cpu.kernels.math.elementwise_runner import applied, compiled, same, specials


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No instruction for f16, nor for x 2^k; what was compiled before and after stays apart."""
    machine = replace(host_machine(), features="")

    def without() -> MachineDescription:
        return machine

    for module in (conversions, vector_arithmetic, lookup_tables):
        monkeypatch.setattr(module, "host_machine", without)
    monkeypatch.setattr(library, "_function_addresses", {})
    compiled.cache_clear()
    yield
    compiled.cache_clear()


@pytest.mark.usefixtures("plain")
def test_every_half_is_widened() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float32)
    assert same(applied("convert", [x], ["f16"], "f32"), wanted).all()


@pytest.mark.usefixtures("plain")
def test_singles_are_rounded_to_halves() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        wide = halves.astype(np.float32)
        between = (wide + np.roll(wide, 1)) / 2  # ties, mostly
        x = np.concatenate([patterns(9973), between, np.nextafter(between, np.float32(1))])
        wanted = x.astype(np.float16)
    assert same(applied("convert", [x], ["f32"], "f16"), wanted).all()


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("op", ["exp", "exp2", "sinh", "cosh", "logistic"])
def test_powers_of_two_are_multiplied_in_two_steps(op: str) -> None:
    x = np.concatenate([specials("f32"), np.linspace(-160, 130, 20011, dtype=np.float32)])
    with np.errstate(all="ignore"):
        truth = TRUTHS[op](x.astype(np.float64))
    assert errors(applied(op, [x], ["f32"], "f32"), truth).max() <= SINGLE[op]


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("pow", "f32"), ("pow", "f64"), ("log", "f64"), ("log1p", "f64"), ("atan", "f64")],
)
def test_tables_are_read_as_well_as_looked_up_in_registers(
    op: str, dtype: str, request: pytest.FixtureRequest
) -> None:
    rng = np.random.default_rng(3)
    type = np.float32 if dtype == "f32" else np.float64
    x, y = rng.lognormal(0, 2, 20011).astype(type), rng.normal(0, 9, 20011).astype(type)
    operands = [x, y] if op == "pow" else [x]
    dtypes = [dtype] * len(operands)
    wanted = applied(op, operands, dtypes, dtype)
    request.getfixturevalue("plain")
    assert same(applied(op, operands, dtypes, dtype), wanted).all()


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("op", ["log", "log2", "log1p", "asinh", "acosh", "atanh", "tanh"])
def test_one_polynomial_is_as_good_as_one_for_each_piece(op: str) -> None:
    near = np.linspace(-2, 4, 20011, dtype=np.float32)
    x = np.concatenate([specials("f32"), patterns(400009), near])
    with np.errstate(all="ignore"):
        truth = TRUTHS[op](x.astype(np.float64))
    assert errors(applied(op, [x], ["f32"], "f32"), truth).max() <= SINGLE[op]


def test_the_bases_of_tanh_have_values_of_few_digits() -> None:
    """A tenth of an ulp is what that may add to the error."""
    exact = np.tanh(np.array(PIECE_BASES))
    near = exact.astype(np.float32)
    assert (np.abs(near - exact) <= np.spacing(near) / 10).all()


def test_the_bases_of_the_arc_tangent_have_values_of_few_digits() -> None:
    """A thousandth of an ulp is what that may add to the error."""
    for base in ARC_BASES:
        with mp.workdps(30):
            near = math.atan(base)
            apart = abs(mp.atan(mp.mpf(base)) - near)
            assert apart <= mp.mpf(math.ulp(near)) / 1000

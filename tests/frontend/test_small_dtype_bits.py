"""The bits of elements of fewer than 8 bits: bitcasts of any width, views, and functions that
depend on the number of bits."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.errors import OperationTypeError
from shardir.interpret.interpreter import evaluate
from shardir.ir.dtypes import DTYPE_INFO, INTEGERS, SMALL_FLOATS, SMALL_INTEGERS
from shardir.stablehlo.reader import read

NARROW = ("i4", "u2", "f4e2m1fn")
PAIRS = [
    pair
    for narrow in NARROW
    for other in ("u2", "i4", "u8", "f8e5m2", "i16", "f32", "i64", "u64")
    for pair in ((narrow, other), (other, narrow))
    if DTYPE_INFO[narrow].bits != DTYPE_INFO[other].bits
]
SHAPE = (3, 2)
"""The shape of an array of the wider elements."""


def random_codes(bits: int) -> Any:
    """Return an array of Python integers of the given number of bits."""
    rng = np.random.default_rng(bits)
    digits = rng.integers(0, 256, (*SHAPE, 8)).astype(object)
    codes = sum(digits[..., i] << 8 * i for i in range(8))
    return codes & ((1 << bits) - 1)


def from_codes(codes: Any, dtype: str) -> Any:
    """Return the elements with the given bits."""
    info = DTYPE_INFO[dtype]
    return codes.astype(np.dtype(f"u{info.memory_bits // 8}")).view(info.numpy)


def to_codes(elements: Any, bits: int) -> Any:
    elements = np.asarray(elements)
    codes = elements.view(np.dtype(f"u{elements.dtype.itemsize}"))
    return (codes.astype(object) & ((1 << bits) - 1)).tolist()


def wide_and_parts(old: str, new: str) -> tuple[Any, Any]:
    """Return an array of the wider type, and the array of its parts in the narrower type."""
    narrow, wide = sorted((DTYPE_INFO[old].bits, DTYPE_INFO[new].bits))
    codes = random_codes(wide)
    parts = [(codes >> narrow * i) & ((1 << narrow) - 1) for i in range(wide // narrow)]
    return codes, np.stack(parts, axis=-1)


@pytest.mark.sample(8)
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_bitcasts_between_widths(old: str, new: str) -> None:
    wide, parts = wide_and_parts(old, new)
    bits = DTYPE_INFO[new].bits
    x, y = (wide, parts) if bits < DTYPE_INFO[old].bits else (parts, wide)
    given = from_codes(x, old)
    with sd.config(enable_x64=True):
        results = [
            lax.bitcast_convert_type(given, DTYPE_INFO[new].numpy),
            sd.jit(sd.vmap(lambda x: lax.bitcast_convert_type(x, DTYPE_INFO[new].numpy)))(given),
        ]
    for result in results:
        assert result.dtype == DTYPE_INFO[new].numpy
        assert to_codes(result, bits) == y.tolist()


MLIR_NAMES = {"f4e2m1fn": "f4E2M1FN", "f8e5m2": "f8E5M2"}


def mlir_type(shape: tuple[int, ...], dtype: str) -> str:
    name = MLIR_NAMES.get(dtype, dtype.replace("u", "ui"))
    return f"tensor<{'x'.join(map(str, shape))}x{name}>"


@pytest.mark.sample(8)
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_bitcasts_in_stablehlo(old: str, new: str) -> None:
    wide, parts = wide_and_parts(old, new)
    bits = DTYPE_INFO[new].bits
    x, y = (wide, parts) if bits < DTYPE_INFO[old].bits else (parts, wide)
    before, after = mlir_type(x.shape, old), mlir_type(y.shape, new)
    text = f"""
    func.func @main(%x: {before}) -> {after} {{
      %y = stablehlo.bitcast_convert %x : ({before}) -> {after}
      return %y : {after}
    }}"""
    (result,) = evaluate(read(text).main, [from_codes(x, old)])
    assert to_codes(result, bits) == y.tolist()


def test_bitcasts_to_other_shapes_are_refused() -> None:
    with pytest.raises(OperationTypeError) as caught:
        lax.bitcast_convert_type(np.zeros((2, 3), ml_dtypes.int4), np.int8)
    assert str(caught.value).splitlines()[0] == (
        "bitcast: cannot reinterpret i4[2, 3] as i8[2]; another width adds or removes a last "
        "dimension"
    )
    with pytest.raises(OperationTypeError) as caught:
        lax.bitcast_convert_type(np.zeros(4, bool), ml_dtypes.int4)
    assert str(caught.value).splitlines()[0] == (
        "bitcast: cannot reinterpret the bits of bool[4]; it takes integers and floats"
    )


def test_views_of_small_integers() -> None:
    octets = np.array([[0x10, -1], [0x7E, 0x05]], np.int8)
    nibbles = snp.asarray(octets).view(ml_dtypes.int4)
    assert np.asarray(nibbles).astype(int).tolist() == [[0, 1, -1, -1], [-2, 7, 5, 0]]
    assert np.asarray(nibbles.view(np.int8)).tolist() == octets.tolist()
    assert np.asarray(nibbles.view(np.int16)).tolist() == octets.view(np.int16).tolist()
    with pytest.raises(OperationTypeError) as caught:
        nibbles[:, :3].view(np.int8)
    assert str(caught.value).splitlines()[0] == (
        "i4[2, 3] cannot be viewed as i8: its last dimension does not divide"
    )


@pytest.mark.parametrize("dtype", SMALL_INTEGERS)
def test_functions_that_depend_on_the_width_of_integers(dtype: str) -> None:
    info = DTYPE_INFO[dtype]
    numbers = np.arange(info.min_integer, info.max_integer + 1)
    x, y = np.meshgrid(numbers, numbers)
    first, second = x.astype(info.numpy), y.astype(info.numpy)
    high = np.asarray(lax.mulhi(first, second))
    assert high.dtype == info.numpy
    assert high.astype(int).tolist() == (x * y >> info.bits).tolist()
    quotient = np.asarray(snp.floor_divide(first, np.where(y == 0, 1, y).astype(info.numpy)))
    expected = (x // np.where(y == 0, 1, y)).astype(info.numpy)
    assert quotient.astype(int).tolist() == expected.astype(int).tolist()


@pytest.mark.parametrize("dtype", SMALL_INTEGERS)
def test_isin_by_a_table_of_all_integers(dtype: str) -> None:
    info, rng = DTYPE_INFO[dtype], np.random.default_rng(0)
    elements = rng.integers(info.min_integer, info.max_integer + 1, 4000)
    tests = rng.integers(info.min_integer + 1, info.max_integer + 1, 300)
    found = snp.isin(
        snp.asarray(elements.astype(info.numpy)), snp.asarray(tests.astype(info.numpy))
    )
    assert np.asarray(found).tolist() == np.isin(elements, tests).tolist()


def test_itemsize_bits() -> None:
    found = {name: sd.dtypes.itemsize_bits(DTYPE_INFO[name].numpy) for name in INTEGERS[:2]}
    assert found == {name: DTYPE_INFO[name].bits for name in INTEGERS[:2]}
    assert sd.dtypes.itemsize_bits(ml_dtypes.float4_e2m1fn) == 4
    assert sd.dtypes.itemsize_bits(bool) == 8
    with sd.config(enable_x64=False):
        assert sd.dtypes.itemsize_bits(np.float64) == 32


def test_the_sign_and_the_parts_of_float4() -> None:
    x = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn)
    assert np.asarray(snp.signbit(x)).tolist() == [False] * 8 + [True] * 8
    signed = np.asarray(snp.copysign(snp.abs(x), x))
    assert signed.view(np.uint8).tolist() == list(range(16))
    with pytest.raises(OperationTypeError) as caught:
        snp.frexp(x)
    assert str(caught.value).splitlines()[0] == (
        "frexp takes floats with at least 8 bits, got f4e2m1fn, in which 0.75 is no number; "
        "convert with .astype"
    )


@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_reduce_precision_rounds_as_xla(dtype: str) -> None:
    jax = pytest.importorskip("jax")
    info = DTYPE_INFO[dtype]
    x = np.arange(1 << info.bits, dtype=np.uint8).view(info.numpy)
    name = MLIR_NAMES.get(dtype, dtype.upper().replace("F", "f", 1))
    for exponent, mantissa in ((4, 1), (3, 2), (2, 1)):
        expected = np.asarray(jax.lax.reduce_precision(x, exponent, mantissa))
        type = f"tensor<{x.size}x{name}>"
        text = f"""
        func.func @main(%x: {type}) -> {type} {{
          %y = stablehlo.reduce_precision %x, format = e{exponent}m{mantissa} : {type}
          return %y : {type}
        }}"""
        for found in (
            lax.reduce_precision(x, exponent, mantissa),
            *evaluate(read(text).main, [x]),
        ):
            result = np.asarray(found)
            assert result.dtype == info.numpy
            np.testing.assert_array_equal(result.astype("f"), expected.astype("f"))

"""Floats of at most 8 bits and integers of 4 or 2 bits, with JAX's results."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.errors import OperationTypeError
from shardir.frontend.errors import IndexingError
from shardir.interpret.interpreter import evaluate
from shardir.ir.builder import Builder
from shardir.ir.dtypes import (
    COMPLEX,
    DTYPE_INFO,
    DTYPES,
    INTEGERS,
    KEYS,
    NUMPY_DTYPES,
    SMALL_DTYPES,
    SMALL_FLOATS,
)
from shardir.ir.module import Function, Module
from shardir.ir.operation import Dense
from shardir.ir.types import TensorType
from shardir.sharding import NamedSharding, PartitionSpec as P
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read
from shardir.text.parser import parse

REAL_DTYPES = [name for name in DTYPES if name not in (*COMPLEX, *KEYS)]


def all_codes(dtype: str) -> Any:
    """Return every element of a small dtype."""
    return np.arange(1 << DTYPE_INFO[dtype].bits, dtype=np.uint8).view(NUMPY_DTYPES[dtype])


def operands(dtype: str) -> Any:
    """Return all elements of a dtype of at most 16 bits; of others special and random ones, and
    numbers between the elements of small floats."""
    info, rng = DTYPE_INFO[dtype], np.random.default_rng(0)
    if dtype in SMALL_DTYPES:
        return all_codes(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTEGERS:
        low, high = max(info.min_integer, -(10**5)), min(info.max_integer, 10**5)
        edges = np.array([info.min_integer, info.max_integer, 0, 1], info.numpy)
        return np.concatenate(
            [edges, rng.integers(low, high, 400, endpoint=True, dtype=info.numpy)]
        )
    if info.bits == 16:
        return np.arange(1 << 16, dtype=np.uint16).view(info.numpy)
    word = np.dtype(f"u{info.bits // 8}")
    parts = [rng.integers(0, 2**info.bits, 2000, dtype=word).view(info.numpy)]
    parts.append(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], info.numpy))
    for small in SMALL_FLOATS:
        numbers = all_codes(small).astype(np.float64)
        numbers = np.unique(numbers[np.isfinite(numbers)])
        middle = (numbers[1:] + numbers[:-1]) / 2
        near = [middle * scale for scale in (1, 1 + 2.0**-23, 1 - 2.0**-23, 1 + 2.0**-40)]
        parts += [x.astype(info.numpy) for x in (numbers, *near)]
    return np.concatenate(parts)


def expected(x: Any, source: str, to: str) -> Any:
    """Return the conversion by ml_dtypes; floats saturate in integers."""
    info = DTYPE_INFO[to]
    if to == "bool":
        return x.astype(np.float32) != 0
    if to in INTEGERS and source not in (*INTEGERS, "bool"):
        whole = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=1e300, neginf=-1e300)
        low, high = whole <= info.min_integer, whole >= info.max_integer
        inside = np.where(low | high, 0, whole).astype(info.numpy)
        limits = [
            np.array(limit).astype(info.numpy) for limit in (info.min_integer, info.max_integer)
        ]
        return np.where(low, limits[0], np.where(high, limits[1], inside))
    if source in SMALL_DTYPES and to in SMALL_DTYPES:  # ml_dtypes lacks some of these casts.
        x = x.astype(np.float32 if source in SMALL_FLOATS else np.int16)
    return x.astype(info.numpy)


def bits(x: Any) -> Any:
    return np.asarray(x).view(f"u{x.dtype.itemsize}")


def conversion(source: str, to: str, size: int) -> Function:
    b = Builder()
    x = b.param(TensorType((size,), source))
    y = b.convert(x, result=TensorType((size,), to))
    return Function("f", b.block([x], [y]), (None,))


@pytest.mark.sample(6)
@pytest.mark.parametrize("source", REAL_DTYPES)
def test_conversions_are_those_of_ml_dtypes(source: str) -> None:
    x = operands(source)
    targets = [d for d in REAL_DTYPES if d != source and {d, source} & set(SMALL_DTYPES)]
    with sd.enable_x64(), np.errstate(all="ignore"):
        compiled = sd.jit(lambda v: [v.astype(NUMPY_DTYPES[d]) for d in targets])(x)
        for to, found in zip(targets, compiled, strict=True):
            wanted = expected(x, source, to)
            (interpreted,) = evaluate(conversion(source, to, x.size), [x])
            assert bits(interpreted).tobytes() == bits(wanted).tobytes(), to
            assert bits(np.asarray(found)).tobytes() == bits(wanted).tobytes(), to


@pytest.mark.parametrize("to", ["f8e4m3fn", "f8e5m2", "f4e2m1fn"])
def test_f64_is_rounded_once(to: str) -> None:
    """Numbers next to the middle of two elements are not first rounded to this middle."""
    elements = all_codes(to)[1:7]
    numbers = elements.astype(np.float64)
    middle = (numbers[1:] + numbers[:-1]) / 2
    convert = sd.jit(lambda x: x.astype(NUMPY_DTYPES[to]))
    with sd.enable_x64():
        for sign in (1, -1):
            above, below = (convert(sign * middle * (1 + e)) for e in (2.0**-40, -(2.0**-40)))
            assert np.asarray(above).tolist() == (sign * elements[1:]).tolist()
            assert np.asarray(below).tolist() == (sign * elements[:-1]).tolist()
        specials = np.array([np.inf, -np.inf, 1e300, -0.0, 1e-300])
        wanted = np.array([np.inf, -np.inf, np.inf, -0.0, 0], "f4").astype(NUMPY_DTYPES[to])
        assert bits(np.asarray(convert(specials))).tolist() == bits(wanted).tolist()
        assert to == "f4e2m1fn" or np.isnan(np.asarray(convert(np.array(np.nan))).astype("f4"))


def test_subnormal_numbers_are_rounded_to_the_least_powers_of_two() -> None:
    """Those below 1.5 times the least power are rounded to it, whose code is 0."""
    numbers = np.array([1e-45, 2.0**-127, 1.4999 * 2.0**-127, 1.5 * 2.0**-127], np.float32)
    found = sd.jit(lambda x: x.astype(NUMPY_DTYPES["f8e8m0fnu"]))(numbers)
    assert bits(np.asarray(found)).tolist() == [0, 0, 0, 1]


@pytest.fixture
def four_devices() -> Any:
    return sd.make_mesh((4,), ("x",))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int4", "float4_e2m1fn"])
def test_all_gathers_of_bytes_send_half_of_bfloat16(four_devices: Any, dtype: str) -> None:
    def gathered_bytes(name: str) -> list[tuple[str, int]]:
        x = sd.ShapeDtypeStruct((16, 8), name, sharding=NamedSharding(four_devices, P("x")))
        everywhere = NamedSharding(four_devices, P())
        f = sd.jit(lambda a: lax.with_sharding_constraint(a, everywhere))
        return [(each.kind, each.nbytes) for each in f.lower(x).compile().collectives()]

    assert gathered_bytes("bfloat16") == [("all-gather", 256)]
    assert gathered_bytes(dtype) == [("all-gather", 128)]


def test_arithmetic_keeps_the_dtype_and_rounds_once() -> None:
    x = snp.array([1.0, 2.5, -3.0, 300.0], "float8_e4m3fn")

    total = x + x

    assert total.dtype == ml_dtypes.float8_e4m3fn
    with np.errstate(all="ignore"):
        expected = np.asarray(x) + np.asarray(x)
    assert bits(np.asarray(total)).tolist() == bits(expected).tolist()
    assert (x * 1.5).dtype == (x + 1).dtype == ml_dtypes.float8_e4m3fn


def test_integers_of_four_bits_wrap() -> None:
    x = snp.array([7, -8, 3], "int4")
    assert np.asarray(x + x).astype(int).tolist() == [-2, 0, 6]
    assert np.asarray(-x).astype(int).tolist() == [-7, -8, -3]
    assert np.asarray(lax.population_count(x)).astype(int).tolist() == [3, 1, 2]
    assert np.asarray(lax.clz(x)).astype(int).tolist() == [1, 0, 2]
    assert np.asarray(lax.shift_right_logical(x, snp.ones_like(x))).astype(int).tolist() == [
        3,
        4,
        1,
    ]


def test_small_dtypes_promote_to_no_other() -> None:
    with pytest.raises(OperationTypeError) as error:
        snp.ones(2, "float8_e4m3fn") + snp.ones(2, "float32")
    assert str(error.value).split("\n")[0] == (
        "float8_e4m3fn and float32 have no common element type, because float8_e4m3fn is not "
        "promoted implicitly; convert an operand, for example with x.astype('float32')"
    )


def test_products_accumulate_in_the_preferred_dtype() -> None:
    x = snp.array([[1.0, 2.5], [-3.0, 40.0]], "float8_e4m3fn")
    y = snp.array([[1.0, 2.5], [-3.0, 0.25]], "float8_e5m2")
    product = snp.dot(x, x, preferred_element_type="float32")
    assert np.asarray(product).tolist() == [[-6.5, 102.5], [-123.0, 1592.5]]
    assert (x @ x).dtype == ml_dtypes.float8_e4m3fn
    mixed = lax.dot(x, y, preferred_element_type="bfloat16")
    assert mixed.dtype == ml_dtypes.bfloat16
    assert np.asarray(mixed).astype(float).tolist() == [[-6.5, 3.125], [-123.0, 2.5]]


def test_gradients_pass_conversions() -> None:
    def loss(w: Any) -> Any:
        return snp.sum(w.astype("float8_e4m3fn").astype("float32") ** 2)

    gradient = sd.grad(loss)(snp.array([1.1, 2.3]))
    assert np.asarray(gradient).tolist() == [2.25, 4.5]


def programs() -> Iterator[tuple[str, Any]]:
    yield "max", lambda np_, x: np_.max(x)
    yield "sort", lambda np_, x: np_.sort(x, axis=None)
    yield "argmax", lambda np_, x: np_.argmax(x)
    yield "concatenate", lambda np_, x: np_.concatenate([x, x])
    yield "take", lambda np_, x: x[np_.asarray([1, 0])]
    yield "set", lambda np_, x: x.at[0].set(1)
    yield "less", lambda np_, x: x < 2
    yield "where", lambda np_, x: np_.where(x > 1, x, 0)
    yield "cumsum", lambda np_, x: np_.cumsum(x, 0)
    yield "matmul", lambda np_, x: x @ x
    yield "negative", lambda np_, x: -x
    yield "multiply", lambda np_, x: x * x


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2fnuz", "int4", "uint4"])
def test_programs_have_the_results_of_jax(dtype: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    numbers = np.array([[1.0, 2.0], [3.0, 4.0]])
    for name, program in programs():
        expected = np.asarray(program(jnp, jnp.asarray(numbers).astype(dtype)))
        found = np.asarray(program(snp, snp.asarray(numbers).astype(dtype)))
        assert found.dtype == expected.dtype, name
        assert bits(found).tolist() == bits(expected).tolist(), name


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", SMALL_DTYPES)
def test_texts_round_trip(dtype: str) -> None:
    codes = np.asarray(all_codes(dtype))
    b = Builder()
    x = b.param(TensorType(codes.shape, dtype), "x")
    constant = b.constant(value=Dense(codes), result=x.type)
    y = b.concatenate(x, constant, dim=0)
    z = b.convert(y, result=y.type.with_dtype("f32"))
    module = Module((), (Function("main", b.block([x], [y, z]), (None, None)),))

    assert str(parse(str(module))) == str(module)
    mlir = show(module)
    name = {"u": f"u{dtype.replace('u', 'i')}", "f": f"f{dtype[1:].upper()}"}.get(dtype[0], dtype)
    assert f"tensor<{codes.size}x{name}>" in mlir
    again = read(mlir)
    (before, after) = (evaluate(m.main, [codes]) for m in (module, again))
    for one, other in zip(before, after, strict=True):
        assert bits(one).tolist() == bits(other).tolist()


def test_a_dtype_without_zero_has_a_sign() -> None:
    x = snp.array([2.0, 0.5, np.nan], "float8_e8m0fnu")
    assert np.asarray(snp.sign(x)).astype(float)[:2].tolist() == [1, 1]
    assert np.isnan(np.asarray(snp.sign(x)).astype(float)[2])


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_the_difference_in_logaddexp_does_not_overflow(name: str) -> None:
    # The difference -96 - 448 is not a number of this dtype, which has no infinity.
    x, y = (np.array(v, ml_dtypes.float8_e4m3fn) for v in ([448.0, -96, 2], [-96.0, 416, 2]))
    expected = getattr(np, name)(x.astype(np.float32), y.astype(np.float32))
    found = getattr(snp, name)(x, y)
    assert found.dtype == x.dtype
    assert np.asarray(found).tolist() == expected.astype(x.dtype).tolist()


@pytest.mark.parametrize("dtype", ["int4", "uint4", "uint2"])
def test_small_integers_are_indices_and_bounds(dtype: str) -> None:
    two, x = snp.array(2, dtype), snp.arange(100)

    counted = lax.fori_loop(snp.array(0, dtype), two, lambda i, c: c + i.astype("int32"), 0)
    chosen = lax.switch(two, [lambda: 5, lambda: 6, lambda: 7])

    assert (int(counted), int(chosen)) == (1, 7)
    assert lax.dynamic_slice(x, (two,), (3,)).tolist() == [2, 3, 4]
    assert lax.dynamic_update_slice(x, snp.array([-5]), (two,))[:4].tolist() == [0, 1, -5, 3]
    batched = sd.vmap(lambda i: lax.dynamic_slice(x, (i,), (3,)))(snp.array([0, 1], dtype))
    assert batched.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert sd.random.randint(sd.random.key(0), (), two, 3).tolist() == 2


@pytest.mark.parametrize(("dtype", "limit"), [("int4", -8), ("uint4", 15), ("int2", -2)])
def test_elements_out_of_bounds_are_the_limit_of_the_dtype(dtype: str, limit: int) -> None:
    x = snp.ones((3, 2), dtype)
    read = x.at[7].get(mode="fill")
    assert np.asarray(read).astype(int).tolist() == [limit, limit]


@pytest.mark.parametrize("dtype", ["int4", "uint2"])
def test_maxima_of_segments_and_windows_of_small_integers(dtype: str) -> None:
    x = snp.array([0, 1, 1, 0], dtype)
    low, high = (-8, 7) if dtype == "int4" else (0, 3)

    greatest = sd.segment_max(x, np.array([0, 0, 2, 2]), 3)
    least = sd.segment_min(x, np.array([0, 0, 2, 2]), 3)

    assert np.asarray(greatest).astype(int).tolist() == [1, low, 1]
    assert np.asarray(least).astype(int).tolist() == [0, high, 0]
    rounded = snp.round(snp.array([0, 1], dtype), -2)
    assert np.asarray(rounded).astype(int).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4"])
def test_indices_of_narrow_types_address_long_dimensions(dtype: str) -> None:
    x, five = snp.arange(300), snp.array([5], dtype)
    last = snp.array([-1], dtype) if dtype != "uint8" else 299

    assert snp.take(x, last, mode="wrap").ravel().tolist() == [299]
    assert snp.take(x, five, mode="clip").tolist() == [5]
    assert [int(i[0]) for i in snp.unravel_index(five, (30, 30))] == [0, 5]
    assert snp.ravel_multi_index((five, five), (30, 30)).tolist() == [155]
    table = snp.arange(600).reshape(2, 300)
    assert lax.dynamic_slice(table, (five[0], 290), (1, 2)).tolist() == [[590, 591]]
    numbers = lax.GatherDimensionNumbers((1,), (), (0,))
    assert lax.gather(x, five[:, None], numbers, (2,), mode="clip").tolist() == [[5, 6]]
    added = lax.scatter_add(
        x, five[:, None], snp.ones((1, 1), "int32"), lax.ScatterDimensionNumbers((1,), (), (0,))
    )
    assert added[4:7].tolist() == [4, 6, 6]


def test_indices_that_no_integer_type_represents_are_refused() -> None:
    message = (
        "unravel_index computes indices of an array of 10000000000 elements, which do not fit into "
        "int32; shardir.enable_x64() allows int64"
    )
    with pytest.raises(IndexingError) as caught:
        snp.unravel_index(snp.array([5]), (100_000, 100_000))
    assert str(caught.value).partition("\n")[0] == message

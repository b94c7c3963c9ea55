"""Creation of arrays from scalars, shapes, lists and index functions."""

from collections.abc import Callable
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
from shardir.errors import OperationTypeError
from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError, NotAnArrayError, ShapeError, TracedValueError
from shardir.frontend.numpy import api as snp
from shardir.frontend.numpy.creation.ranges import arange_length
from shardir.ir.types import dtype_name
from shardir.sharding import NamedSharding, PartitionSpec
from tests.namespace import check, close, ops, run

pytestmark = pytest.mark.sample(2)

MATRIX = np.arange(12, dtype="f").reshape(3, 4)
VECTOR = np.array([3.0, -1.0, 2.0], "f")


@pytest.mark.parametrize("name", ["zeros", "ones"])
@pytest.mark.parametrize("shape", [(), 3, (2, 0), [2, 3], np.int64(2)], ids=str)
def test_creation_from_a_shape(name: str, shape: Any) -> None:
    check(name, shape)
    assert run(getattr(snp, name), shape, "int32").dtype == np.int32
    assert ops(getattr(snp, name), shape) == ["constant"]


def test_full_broadcasts_its_value() -> None:
    assert run(snp.full, (2, 2), 7).tolist() == [[7, 7], [7, 7]]
    assert run(snp.full, (2, 3), VECTOR).tolist() == [VECTOR.tolist()] * 2
    assert run(snp.full, 2, 2.7, int).tolist() == [2, 2]


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "empty_like"])
def test_creation_like_another_array(name: str) -> None:
    assert run(getattr(snp, name), MATRIX).shape == (3, 4)
    assert run(getattr(snp, name), MATRIX, dtype=snp.int8).dtype == np.int8
    assert run(getattr(snp, name), MATRIX, shape=(2,)).shape == (2,)
    assert run(getattr(snp, name), [[1, 2], [3, 4]]).dtype == np.int32
    assert ops(getattr(snp, name), MATRIX) == ["constant"]


def test_full_like() -> None:
    check("full_like", MATRIX, 3)
    check("full_like", MATRIX, np.arange(4, dtype="f"))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (3, "i32"), (2.5, "f32"), (True, "bool"), (1j, "c64"), ([1, 2], "i32"),
        ([[1.0], [2]], "f32"), ([], "f32"), (np.arange(3), "i32"), (np.ones(100), "f32"),
        (np.float16(2), "f16"), ([True, False], "bool"), ([np.float32(1), 2], "f32"),
        (((1, 2), (3, 4)), "i32"),
    ],
)  # fmt: skip
def test_array_of_python_numbers(value: Any, dtype: str) -> None:
    expected = np.asarray(value)
    for got in (run(lambda: snp.array(value)), np.asarray(snp.array(value))):
        assert dtype_name(got.dtype) == dtype
        close(got, expected)


def test_array_of_traced_values_stacks_them() -> None:
    got = run(lambda x: snp.array([[x[0], 1], [2.5, x[1]]]), VECTOR)
    assert got.tolist() == [[3.0, 1.0], [2.5, -1.0]]


def test_array_with_more_axes() -> None:
    assert run(snp.array, VECTOR, ndmin=3).shape == (1, 1, 3)


def test_array_of_another_type() -> None:
    assert run(snp.asarray, VECTOR, snp.int32).tolist() == [3, -1, 2]
    assert run(snp.asarray, 255, "uint8").tolist() == 255
    assert run(snp.asarray, [1, 2], "bfloat16").dtype == ml_dtypes.bfloat16


def test_sixty_four_bits_when_enabled() -> None:
    with config(enable_x64=True):
        assert run(snp.arange, 3).dtype == np.int64
        assert run(snp.zeros, 3).dtype == np.float64
        assert run(lambda: snp.array([1.0])).dtype == np.float64


@pytest.mark.parametrize(
    "value", [[[1, 2], [3]], ["a"], "text", object()], ids=["ragged", "nested", "text", "object"]
)
def test_values_that_are_not_arrays_are_errors(value: Any) -> None:
    with pytest.raises(NotAnArrayError):
        snp.array(value)


@pytest.mark.parametrize(
    "bounds",
    [(5,), (2, 7), (2, 11, 3), (7, 2, -2), (3, 3), (5, 2), (2.5,), (0, 1, 0.1), (1, 2, 0.25),
     (-3.0, 3.0), (True,), (np.int32(3), np.int32(9))],
    ids=str,
)  # fmt: skip
def test_arange(bounds: Any) -> None:
    check("arange", *bounds)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "float32", "int32"])
def test_arange_with_a_dtype(dtype: str) -> None:
    got = run(snp.arange, 1, 100, 3, dtype)
    assert got.tolist() == np.arange(1, 100, 3).tolist()
    assert got.dtype == dtype


def test_arange_in_bfloat16_counts_beyond_its_precision() -> None:
    got = run(snp.arange, 600, None, None, snp.bfloat16)
    assert got.tolist() == np.arange(600).astype(ml_dtypes.bfloat16).tolist()


def test_arange_is_one_operation() -> None:
    assert ops(snp.arange, 5) == ["iota"]
    assert ops(snp.arange, 5.0) == ["iota"]
    assert ops(snp.arange, 2, 5) == ["iota", "constant", "add"]


def test_arange_requires_concrete_numbers() -> None:
    with pytest.raises(TracedValueError, match="shapes and Python's range need concrete"):
        run(snp.arange, np.array(3))
    with pytest.raises(
        ArgumentError, match="the step of arange is 0; pass another step, or use full"
    ):
        snp.arange(1, 2, 0)


def test_negative_shapes_are_errors() -> None:
    with pytest.raises(ShapeError, match=r"shape \(2, -1\) has a negative size"):
        snp.zeros((2, -1))
    with pytest.raises(
        ShapeError, match=r"shape \(2, 1.5\) has the size 1.5, which is not an integer"
    ):
        snp.zeros((2, 1.5))  # type: ignore[arg-type]
    with pytest.raises(OperationTypeError, match=r"the result f32\[-1, 2\] has a negative size"):
        snp.tile(snp.ones(2), -1)


@pytest.mark.parametrize("num", [0, 1, 2, 7])
@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("ends", [(0, 1), (-3.5, 10), (np.float32(2), np.float32(2))])
def test_linspace(ends: Any, num: Any, endpoint: Any) -> None:
    ends = [np.asarray(e, "f") for e in ends]
    check("linspace", *ends, num, endpoint)
    got, gap = run(snp.linspace, *ends, num, endpoint, retstep=True)
    numpys: Any = np.linspace
    assert gap == pytest.approx(numpys(*ends, num, endpoint, retstep=True)[1], nan_ok=True)
    if endpoint and num > 1:
        assert got[-1] == ends[1]


@pytest.mark.parametrize(("num", "endpoint"), [(0, True), (0, False), (1, True)])
@pytest.mark.parametrize("ends", [(0.0, 3.0), (np.zeros(2, "f"), np.ones((3, 1), "f"))])
def test_linspace_without_a_step_returns_nan(ends: Any, num: int, endpoint: bool) -> None:
    start, stop = ends
    values, step = sd.numpy.linspace(start, stop, num, endpoint, retstep=True)
    assert values.shape == (num, *np.add(start, stop).shape)
    assert (step.shape, step.dtype) == ((), np.float32)
    assert np.isnan(step)


def test_linspace_of_numbers_arrays_and_integers() -> None:
    check("linspace", 0, 1, 5)
    check("linspace", VECTOR, 2 * VECTOR, 5, axis=1)
    check("linspace", VECTOR, 4.0, 5, axis=-1)
    assert run(snp.linspace, 0, 10, 4, dtype=int).tolist() == [0, 3, 6, 10]
    assert run(snp.linspace, -1, 1, 4, dtype=int).tolist() == [-1, -1, 0, 1]


def test_logspace_and_geomspace() -> None:
    check("logspace", 0, 3, 4)
    check("logspace", 0, 3, 5, endpoint=False, base=2.0)
    check("geomspace", 1, 1000, 4)
    check("geomspace", -2.0, -32.0, 5)
    check("geomspace", 1.0, 16.0, 4, endpoint=False)
    check("geomspace", VECTOR[:1], 3 * VECTOR[:1], 4, axis=-1)
    with pytest.raises(
        ArgumentError, match="start or stop of geomspace is 0; both must be nonzero"
    ):
        snp.geomspace(0, 3)


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_meshgrid(count: int, sparse: bool, indexing: str) -> None:
    vectors = [np.arange(n + 2, dtype="f") for n in range(count)]
    check("meshgrid", *vectors, sparse=sparse, indexing=indexing)


def test_meshgrid_takes_vectors() -> None:
    with pytest.raises(ShapeError, match=r"meshgrid takes vectors, got shape \(3, 4\)"):
        run(snp.meshgrid, MATRIX)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0)], ids=str)
@pytest.mark.parametrize("sparse", [True, False])
def test_indices(shape: tuple[int, ...], sparse: bool) -> None:
    check("indices", shape, sparse=sparse)


def test_fromfunction() -> None:
    got = run(snp.fromfunction, lambda i, j: i * 10 + j, (3, 4), dtype="float32")
    close(got, np.fromfunction(lambda i, j: i * 10 + j, (3, 4)))


def test_fromfunction_calls_a_function_with_arrays() -> None:
    seen: list[Any] = []

    def noted(i: Any, j: Any, *, by: float = 1.0) -> Any:
        seen.append((i, j))
        return {"sum": i + j * by, "one": 1}

    for by in (1.0, 2.0):
        made = snp.fromfunction(noted, (3, 4), dtype=np.int32, by=by)
        expected = np.fromfunction(lambda i, j, by=by: i + j * by, (3, 4))
        np.testing.assert_array_equal(made["sum"], expected)
        assert made["one"].dtype == np.int32
    assert [each.dtype for each in seen[0]] == [np.int32, np.int32]
    assert snp.fromfunction(lambda i: "text" if i.shape == (2,) else i, (3,)).tolist() == [0, 1, 2]
    with pytest.raises(NotAnArrayError, match="fromfunction returned 'text'"):
        snp.fromfunction(lambda i: "text", (3,))
    with pytest.raises(
        ArgumentError, match="the function of fromfunction must be a function, got 3"
    ):
        snp.fromfunction(cast(Any, 3), (3,))


@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("count", [None, 0, 2, 5])
@pytest.mark.parametrize("x", [VECTOR, np.array([0, -2, 3], "i4")], ids=["f32", "i32"])
def test_vander(x: Any, count: int | None, increasing: bool) -> None:
    check("vander", x, count, increasing)


def test_grids_by_slices() -> None:
    close(np.asarray(snp.mgrid[0:3, 1:5:2]), np.mgrid[0:3, 1:5:2])
    close(np.asarray(snp.mgrid[0:1:5j]), np.mgrid[0:1:5j])
    for mine, theirs in zip(snp.ogrid[0:3, 1:5], np.ogrid[0:3, 1:5], strict=True):
        close(np.asarray(mine), theirs)


@pytest.mark.parametrize("args", [(3,), (3, 5), (4, 2, 1), (4, 4, -2), (0,), (3, 3, 7)], ids=str)
def test_eye_and_tri(args: Any) -> None:
    check("eye", *args)
    check("tri", *args)
    assert ops(snp.eye, 3) == ["iota", "iota", "eq", "convert"]


def test_identity() -> None:
    check("identity", 3)
    assert run(snp.identity, 2, int).dtype == np.int32


@pytest.mark.parametrize("k", [-5, -1, 0, 2, 5])
def test_triangles(k: int) -> None:
    stack = np.arange(24, dtype="i4").reshape(2, 3, 4)
    for x in (MATRIX, stack, VECTOR, np.array([[np.nan, np.inf], [1, np.nan]], "f")):
        check("tril", x, k)
        check("triu", x, k)


@pytest.mark.parametrize("k", [-4, -1, 0, 1, 3, 4])
def test_diagonals(k: int) -> None:
    check("diag", VECTOR, k)
    check("diag", MATRIX, k)
    check("diag", MATRIX.T.copy(), k)
    check("diagflat", MATRIX, k)
    check("diagonal", np.arange(24.0, dtype="f").reshape(2, 3, 4), k, 1, 2)
    check("diagonal", np.arange(24.0, dtype="f").reshape(2, 3, 4), k, 2, 0)


def test_a_matrix_has_two_axes() -> None:
    with pytest.raises(ShapeError, match=r"diag takes a vector or a matrix, got shape \(\)"):
        run(snp.diag, np.array(1.0, "f"))
    with pytest.raises(ShapeError, match=r"tril takes matrices, got shape \(\)"):
        run(snp.tril, np.array(1.0, "f"))
    with pytest.raises(ShapeError, match="a matrix cannot have -1 rows and 2 columns"):
        snp.eye(-1, 2)


def test_device_and_sharding_of_created_arrays() -> None:
    mesh = sd.make_mesh((4, 2), ("x", "y"))
    sharding = NamedSharding(mesh, PartitionSpec("x", "y"))
    made = snp.zeros((8, 4), device=sharding)
    assert made.sharding == sharding
    assert snp.ones_like(made).sharding == sharding
    assert snp.zeros_like(made, shape=(3,)).sharding.num_devices == 1
    assert snp.arange(8, device=sd.devices()[3]).devices() == {sd.devices()[3]}
    assert snp.asarray(np.ones((8, 2), "f"), device=sharding).sharding == sharding


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "bfloat16"])
def test_large_zeros_are_lazily_zeroed_pages(dtype: str) -> None:
    shape = (3, 1 << 21)
    for made in (
        snp.zeros(shape, dtype),
        snp.empty(shape, dtype),
        snp.zeros_like(snp.ones(shape, dtype)),
    ):
        assert (made.shape, made.dtype) == (shape, np.dtype(dtype))
        assert not np.asarray(made).any()
        assert not made.weak_type
    first = snp.zeros(shape, dtype)
    grown = sd.jit(lambda x: x + 1, donate_argnums=0)(first)
    assert np.asarray(grown == 1).all()
    assert not np.asarray(snp.zeros(shape, dtype)).any()


def test_full_keeps_the_type_of_its_value() -> None:
    assert np.signbit(np.asarray(snp.full(3, -0.0, np.float32))).all()
    assert np.asarray(snp.full(2, True, np.float32)).tolist() == [1.0, 1.0]
    assert np.asarray(snp.full(2, 2.0, np.int32)).tolist() == [2, 2]
    assert np.isnan(np.asarray(snp.full(2, np.nan, np.float32))).all()
    assert np.asarray(snp.full_like(snp.ones(2), -3)).tolist() == [-3.0, -3.0]


@pytest.mark.parametrize(
    "bounds",
    [
        (0,), (7,), (-3,), (2, 9), (9, 2), (9, 2, -2), (0, 10, 3), (0, 1, 0.1), (0.5, 3),
        (1, -1, -0.3), (0, 0.95, 0.05), (10**12, 10**12 + 3), (1e300, -1e300, -1e299),
        (True, 4), (0, 3 + 0j),
    ],
)  # fmt: skip
def test_arange_has_the_length_of_numpy(bounds: Any) -> None:
    assert arange_length(*{1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]) == len(
        np.arange(*bounds)
    )


def test_arange_computes_its_length_without_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "arange", lambda *bounds: pytest.fail("that takes eight bytes each"))
    assert snp.arange(1000, dtype="uint8").shape == (1000,)


@pytest.mark.parametrize("end", [float("inf"), float("nan"), 10**30])
def test_arange_of_infinite_length_is_an_error(end: Any) -> None:
    with pytest.raises(ArgumentError, match=r"arange from 0 to .* by 1 has no finite length"):
        snp.arange(end)


LISTED = [1] * 100_000
LONG_LISTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: snp.sin(LISTED), "argument x of sin is a list of 100000 numbers"),
    (lambda: snp.sum([[1.5] * 1000] * 2), "argument a of sum is a list of 2000 numbers"),
    (lambda: snp.stack(LISTED), "argument arrays of stack is a list of 100000 numbers"),
    (
        lambda: snp.concatenate([LISTED, LISTED]),
        "argument arrays of concatenate is a list of 200000 numbers",
    ),
    (
        lambda: snp.sin(tuple(np.ones(2000, np.float32))),
        "argument x of sin is a tuple of 2000 numbers",
    ),
]


@pytest.mark.parametrize(("call", "says"), LONG_LISTS, ids=[says for _, says in LONG_LISTS])
def test_too_long_lists_are_errors(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(NotAnArrayError) as caught:
        call()
    hint = ", and at most 1024 are accepted; make it one array with snp.array"
    assert str(caught.value).partition("\n")[0] == says + hint


@pytest.mark.parametrize("make", [snp.array, snp.asarray])
def test_a_long_list_becomes_one_array(make: Callable[..., Any]) -> None:
    whole, real, rows = make(LISTED), make([1.5] * 100_000), make([LISTED, LISTED])
    assert (whole.dtype, whole.shape, whole.weak_type) == (np.int32, (100_000,), False)
    assert (real.dtype, real.shape, real.weak_type) == (np.float32, (100_000,), False)
    assert rows.shape == (2, 100_000)
    assert make(LISTED, np.uint8).dtype == np.uint8


@pytest.mark.parametrize(
    "make",
    [
        lambda: snp.asarray(1j, "float32"),
        lambda: snp.array(1j, "float32"),
        lambda: snp.float32(1j),
        lambda: snp.full(2, 1j, "float32"),
        lambda: snp.full_like(np.zeros(2, "float32"), 1j),
        lambda: snp.array([1j, 2], "float32"),
        lambda: snp.asarray(((1.0, 2), (3, 1j)), "float32"),
        lambda: snp.float32([True, 1j]),
        lambda: snp.array([np.complex64(2j), 1j], "float32"),
        lambda: sd.jit(lambda: snp.array([1j, 2], "float32"))(),
        lambda: snp.zeros(3, "float32").at[5].get(mode="fill", fill_value=1j),
    ],
)
def test_a_complex_number_does_not_become_real(make: Callable[[], Any]) -> None:
    with pytest.raises(OperationTypeError) as caught:
        make()
    told = str(caught.value).partition("\n")[0]
    assert told == "f32 cannot represent the complex number 1j; pass its .real"
    assert bool(snp.asarray(1j, bool))


# A conversion warns when it is traced, so that each case has a size that no other test has.
@pytest.mark.parametrize(
    ("size", "make"),
    [
        (31, lambda x: snp.asarray(x, "float32")),
        (32, lambda x: snp.array(list(x), "float32")),
        (33, lambda x: snp.full(33, x, "float32")),
        (34, lambda x: snp.asarray(x).astype("float32")),
        (35, sd.jit(lambda x: x.astype("float32"))),
    ],
)
def test_a_conversion_to_a_real_type_warns(size: int, make: Callable[[Any], Any]) -> None:
    x = np.arange(size, dtype="complex64") + 3j
    with pytest.warns(np.exceptions.ComplexWarning) as caught:
        assert make(x).tolist() == x.real.tolist()
    told = str(caught[0].message).partition("\n")[0]
    assert told == (
        f"the conversion of c64[{size}] to f32 discards the imaginary part; take .real to state "
        "that"
    )


def test_complex_numbers_become_bools_without_a_warning() -> None:
    assert snp.array([1j, 0], bool).tolist() == [True, False]
    assert snp.array([np.complex64(1j), 0.0], bool).tolist() == [True, False]

"""Matrix products of the native CPU backend: all einsums, element types and layouts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernel_api import Phase
from shardir.backends.cpu.kernels.gemm import record_builder
from shardir.backends.cpu.kernels.rules import LAYOUT_RULES, RULES
from shardir.ir.types import COMPLEX, NUMPY_DTYPES, TensorType
from shardir.ops import dot
from tests.backends.cpu.machine_descriptions import MACHINES, ZEN_5
from tests.backends.cpu.phase_runner import (
    lower_and_run,
    lower_for_machine,
    make_op,
    run_rule,
    selected_kernel_names,
)
from tests.case_pairs import cross_cases
from tests.dtype_groups import FLOATS, INTEGERS

pytestmark = pytest.mark.sample(5)

Array = npt.NDArray[Any]
NUMERIC_DTYPES = (*INTEGERS, *FLOATS, *COMPLEX)
EPSILON = {"f16": 2e-3, "bf16": 1e-2, "f32": 3e-6, "c64": 5e-6, "f64": 1e-14, "c128": 1e-14}
"""The largest error of a sum, relative to the sum of the absolute products."""


def random_elements(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return random elements; integers use the full range, so that products wrap around."""
    kind = NUMPY_DTYPES[dtype]
    if dtype in INTEGERS:
        bounds = np.iinfo(kind)
        return np.asarray(rng.integers(bounds.min, bounds.max, shape, kind, endpoint=True))
    real = np.asarray(rng.standard_normal(shape))
    return np.asarray(real + 1j * rng.standard_normal(shape) if dtype in COMPLEX else real, kind)


def assert_product(got: Array, x: Array, y: Array, dims: str, result: TensorType) -> None:
    """Assert that a product equals the reference up to the rounding errors of its sums."""
    want = dot.reference
    assert want is not None
    expected = np.asarray(want(x, y, dims=dims, result=result))
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if result.dtype in INTEGERS:
        np.testing.assert_array_equal(got, expected)
        return
    wide = np.complex128 if result.dtype in COMPLEX else np.float64
    scale = np.einsum(dims, np.abs(x.astype(wide)), np.abs(y.astype(wide)))
    error = np.abs(got.astype(wide) - expected.astype(wide))
    assert (error <= EPSILON[result.dtype] * scale + 1e-30).all()


def check_product(
    x: Array, y: Array, dims: str, result: TensorType | None = None, **more: Any
) -> Array:
    types = [TensorType(a.shape, str(name)) for a, name in ((x, dtype_of(x)), (y, dtype_of(y)))]
    op = make_op(dot, *types, dims=dims, result=result)
    (got,) = run_rule(RULES["dot"], op, [x, y], LAYOUT_RULES["dot"], **more)
    assert_product(got, x, y, dims, op.result.type)
    return got


def selected_kernels(
    machine: HostDescription, dims: str, dtype: str = "f32", **sizes: int
) -> list[str]:
    """Return the names of the kernels of a product of dense matrices on a machine."""
    types = [
        TensorType(tuple(sizes[c] for c in term), dtype)
        for term in dims.partition("->")[0].split(",")
    ]
    return selected_kernel_names(RULES["dot"], make_op(dot, *types, dims=dims), machine)


def kernels(x: Array, y: Array, dims: str) -> list[str]:
    """Check a product and return the names of its kernels."""
    types = [TensorType(a.shape, dtype_of(a)) for a in (x, y)]
    op = make_op(dot, *types, dims=dims)
    out = np.zeros(op.result.type.shape, x.dtype)
    phases = lower_and_run(RULES["dot"], op, [x, y], [out])
    assert phases is not None
    assert_product(out, x, y, dims, op.result.type)
    return [phase.kernel.name for phase in phases]


def dtype_of(x: Array) -> str:
    return next(name for name, kind in NUMPY_DTYPES.items() if kind == x.dtype)


@st.composite
def layouts(draw: st.DrawFn, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Draw elements with permuted, reversed, broadcast and strided dimensions."""
    order = draw(st.permutations(range(len(shape))))
    gaps = [draw(st.sampled_from((1, 1, 1, 2))) for _ in shape]
    full_product = random_elements(rng, tuple(shape[d] * gaps[d] for d in order), dtype)
    x = full_product.transpose([order.index(d) for d in range(len(shape))])
    x = x[tuple(slice(None, None, gap) for gap in gaps)]
    x = x[tuple(slice(0, size) for size in shape)]
    for d, size in enumerate(shape):
        how = draw(st.sampled_from(("", "", "", "reversed", "repeated")))
        if how == "reversed":
            x = np.flip(x, d)
        elif how == "repeated" and size:
            x = np.broadcast_to(x[(slice(None),) * d + (slice(0, 1),)], shape)
    return np.asarray(x)


@st.composite
def einsums(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    letters = "abcde"[: draw(st.integers(1, 5))]
    sizes = {c: draw(st.sampled_from((0, 1, 2, 3, 4, 5, 7, 13))) for c in letters}
    where = {c: draw(st.sampled_from(("l", "r", "lr", "lro", "lro", "lo", "ro"))) for c in letters}
    terms = [
        "".join(draw(st.permutations([c for c in letters if side in where[c]]))) for side in "lro"
    ]
    return f"{terms[0]},{terms[1]}->{terms[2]}", sizes


@given(st.data(), einsums(), st.sampled_from(NUMERIC_DTYPES))
def test_random_einsums_match_the_reference(
    data: st.DataObject, einsum: tuple[str, dict[str, int]], dtype: str
) -> None:
    dims, sizes = einsum
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    terms = dims.partition("->")[0].split(",")
    x, y = (
        data.draw(layouts(rng, tuple(sizes[c] for c in term), dtype), label=term) for term in terms
    )
    output = dims.partition("->")[2]
    out = data.draw(layouts(rng, tuple(sizes[c] for c in output), dtype))
    if 0 in out.strides and out.size:
        out = np.empty_like(out)
    op = make_op(dot, TensorType(x.shape, dtype), TensorType(y.shape, dtype), dims=dims)
    assert lower_and_run(RULES["dot"], op, [x, y], [out]) is not None
    assert_product(out, x, y, dims, op.result.type)


SHAPES = [
    ("mk,kn->mn", (300, 700), (700, 130)),
    ("mk,nk->mn", (130, 700), (300, 700)),
    ("km,kn->nm", (513, 70), (513, 90)),
    ("mk,kn->mn", (460, 700), (700, 150)),
    ("mk,kn->mn", (230, 500), (500, 100)),
    ("mk,kn->mn", (1, 600), (600, 333)),
    ("mk,kn->mn", (333, 600), (600, 1)),
    ("mk,kn->mn", (8, 300), (300, 500)),
    ("mk,kn->mn", (60, 1100), (1100, 900)),
    ("mk,nk->mn", (50, 1100), (900, 1100)),
    ("km,kn->mn", (600, 500), (600, 700)),
    ("km,kn->mn", (190, 250), (190, 330)),
    ("km,kn->nm", (190, 70), (190, 45)),
    ("zkm,zkn->zmn", (3, 150, 40), (3, 150, 70)),
    ("mk,kn->mn", (500, 300), (300, 10)),
    ("k,kn->n", (301,), (301, 1200)),
    ("mk,kn->mn", (6, 1601), (1601, 2001)),
    ("mk,nk->mn", (1400, 400), (4, 400)),
    ("kn,k->n", (1601, 2001), (1601,)),
    ("kz,kz->z", (300, 70), (300, 70)),
    ("akz,ak->az", (3, 2000, 70), (3, 2000)),
    ("i,i->", (70000,), (70000,)),
    ("ka,kb->ab", (20001, 5), (20001, 7)),
    ("ka,kb->ab", (65541, 70), (65541, 90)),
    ("ka,kb->ba", (8259, 230), (8259, 210)),
    ("i,j->ij", (300,), (200,)),
    ("zmk,zkn->zmn", (30, 4, 4), (30, 4, 4)),
    ("zmk,zkn->zmn", (5, 40, 70), (5, 70, 33)),
    ("bshd,bthd->bhst", (2, 20, 3, 16), (2, 30, 3, 16)),
    ("aik,akn->in", (4, 50, 60), (4, 60, 70)),
]


# The test with several workers runs all of them for f32.
@pytest.mark.parametrize(
    ("dims", "left", "right", "dtype"), cross_cases(SHAPES, ("f64", "bf16", "i32", "c64"))
)
def test_products_of_many_shapes_match_the_reference(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(0)
    check_product(random_elements(rng, left, dtype), random_elements(rng, right, dtype), dims)


@pytest.mark.parametrize("columns", [129, 137, 144, 145, 153])
@pytest.mark.parametrize("rows", [121, 125, 128, 129])
def test_remaining_rows_and_columns_match_the_reference(rows: int, columns: int) -> None:
    """The remaining rows and columns use smaller tiles."""
    rng = np.random.default_rng(0)
    x, y = random_elements(rng, (rows, 300), "f32"), random_elements(rng, (columns, 300), "f32")
    op = make_op(dot, *(TensorType(a.shape, "f32") for a in (x, y)), dims="mk,nk->mn")
    phases = lower_and_run(RULES["dot"], op, [x, y], [np.empty((rows, columns), np.float32)])
    assert phases
    assert all(phase.kernel.name.startswith("packed_gemm") for phase in phases)
    check_product(x, y, "mk,nk->mn")


@pytest.mark.parametrize("dtype", NUMERIC_DTYPES)
def test_products_of_all_element_types_match_the_reference(dtype: str) -> None:
    rng = np.random.default_rng(0)
    check_product(
        random_elements(rng, (37, 70), dtype), random_elements(rng, (70, 45), dtype), "mk,kn->mn"
    )


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [("i8", "i32"), ("u8", "i16"), ("i16", "f32"), ("f16", "f32"), ("bf16", "f32"),
     ("f32", "f64"), ("f32", "c64"), ("c64", "c128")],
)  # fmt: skip
def test_accumulation_in_a_wider_type_matches_the_reference(dtype: str, wide: str) -> None:
    rng = np.random.default_rng(0)
    x, y = random_elements(rng, (37, 70), dtype), random_elements(rng, (70, 45), dtype)
    check_product(x, y, "mk,kn->mn", TensorType((37, 45), wide))


@pytest.mark.parametrize(
    ("dims", "left", "right", "dtype"),
    [*cross_cases(SHAPES, ("f32",)), *cross_cases(SHAPES, ("c64", "bf16"))],
)
def test_products_do_not_depend_on_the_worker_count(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(0)
    x, y = random_elements(rng, left, dtype), random_elements(rng, right, dtype)
    one, *others = (check_product(x, y, dims, workers=workers).tobytes() for workers in (1, 2, 7))
    assert all(other == one for other in others)


def test_infinities_and_nan_stay_in_their_rows() -> None:
    x, y = np.ones((20, 30), np.float32), np.ones((30, 40), np.float32)
    x[3, 5], x[7, 2], y[4, 11] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = x @ y
    op = make_op(dot, TensorType(x.shape, "f32"), TensorType(y.shape, "f32"), dims="mk,kn->mn")
    (got,) = run_rule(RULES["dot"], op, [x, y])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision_is_rounded_once(dtype: str) -> None:
    """The f32 sum is rounded to nearest even, including subnormals, infinities and NaN."""
    kind = NUMPY_DTYPES[dtype]
    bits = np.arange(1 << 16, dtype=np.uint16).view(kind).reshape(256, 256)
    x = np.asarray([[1.0]], kind)
    with np.errstate(all="ignore"):
        for scale in (1.0, 0.5, 1.0078125):
            y = np.asarray(scale, kind)
            want = (bits.reshape(1, -1).astype(np.float32) * y.astype(np.float32)).astype(kind)
            out = np.empty((1, 1 << 16), kind)
            row = (bits.reshape(1, -1), x * y)
            types = [TensorType(a.shape, dtype) for a in row]
            op = make_op(dot, *types, dims="kn,km->mn")
            assert lower_and_run(RULES["dot"], op, row, [out])
            nan = np.isnan(want)
            np.testing.assert_array_equal(np.isnan(out), nan)
            np.testing.assert_array_equal(out[~nan], want[~nan])


@settings(max_examples=20)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 600))
def test_sizes_near_the_tile_sizes_match_the_reference(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    check_product(
        random_elements(rng, (m, k), "f32"), random_elements(rng, (k, n), "f32"), "mk,kn->mn"
    )


@pytest.mark.parametrize("dtype", ["f32", "c64"])
@pytest.mark.parametrize("columns", [800, 820, 15])
def test_edge_tiles_give_the_bits_of_full_tiles(columns: int, dtype: str) -> None:
    """Smaller tiles at the edges sum in the same order as full tiles."""
    rng = np.random.default_rng(0)
    left, right = (
        random_elements(rng, (252, 420), dtype),
        random_elements(rng, (420, columns), dtype),
    )
    full_product = check_product(left, right, "mk,kn->mn")
    for rows in (241, 244, 247, 251):
        for fewer_columns in (columns - less for less in (31, 23, 16, 9, 1)):
            if fewer_columns > 8:
                some = check_product(left[:rows], right[:, :fewer_columns], "mk,kn->mn")
                np.testing.assert_array_equal(some, full_product[:rows, :fewer_columns])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("rows", "columns", "inner"), [(5000, 40, 30), (300, 64, 256), (4100, 16, 1), (900, 100, 0)]
)
def test_blocks_of_rows_give_the_bits_of_single_products(
    rows: int, columns: int, inner: int, dtype: str
) -> None:
    """The kernel processes prefetched blocks of rows; each row has the bits of a separate
    product."""
    rng = np.random.default_rng(0)
    left, right = (
        random_elements(rng, (rows, inner), dtype),
        random_elements(rng, (inner, columns), dtype),
    )
    full_product = check_product(left, right, "mk,kn->mn")
    some = check_product(left[7:90], right, "mk,kn->mn")
    np.testing.assert_array_equal(some, full_product[7:90])


NARROW_PRODUCTS = [
    "k,k->", "ak,k->a", "ka,k->a", "k,ak->a", "k,kb->b", "ak,kb->ab", "ak,bk->ab", "ka,kb->ab",
    "kl,lk->", "akl,k->al", "akl,l->ak", "zk,zk->z", "zak,zk->za", "zka,zk->za", "zak,zbk->zab",
    "za,zb->zab",
]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMERIC_DTYPES)
@pytest.mark.parametrize("dims", NARROW_PRODUCTS)
def test_narrow_products_do_not_pack(dims: str, dtype: str) -> None:
    left, right = dims.partition("->")[0].split(",")
    rng, sizes = np.random.default_rng(0), {"a": 3, "b": 5, "k": 103, "l": 70, "z": 9}
    x, y = (random_elements(rng, tuple(sizes[c] for c in term), dtype) for term in (left, right))
    op = make_op(dot, *(TensorType(v.shape, dtype) for v in (x, y)), dims=dims)
    out = np.zeros(op.result.type.shape, NUMPY_DTYPES[dtype])
    phases = lower_and_run(RULES["dot"], op, [x, y], [out])
    assert phases is not None
    assert not any(phase.kernel.name.startswith("packed_gemm") for phase in phases)
    assert_product(out, x, y, dims, op.result.type)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("dims", ["k,kb->b", "ak,k->a", "ak,kb->ab"])
def test_products_of_infinite_complex_numbers_match_the_reference(dims: str, dtype: str) -> None:
    """All kernels multiply infinite complex numbers as the reference does."""
    left, right = dims.partition("->")[0].split(",")
    sizes = {"a": 2, "b": 3, "k": 1}
    one, inf = NUMPY_DTYPES[dtype].type(1), NUMPY_DTYPES[dtype].type(complex(np.inf, 2))
    x = np.full([sizes[c] for c in left], inf, NUMPY_DTYPES[dtype])
    y = np.full([sizes[c] for c in right], one, NUMPY_DTYPES[dtype])
    op = make_op(dot, *(TensorType(v.shape, dtype) for v in (x, y)), dims=dims)
    (got,) = run_rule(RULES["dot"], op, [x, y])
    assert dot.reference is not None
    with np.errstate(invalid="ignore"):
        want = dot.reference(x, y, dims=dims, result=op.result.type)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", NUMERIC_DTYPES)
@pytest.mark.parametrize(
    ("dims", "left", "right"),
    [
        ("zmk,zkn->zmn", (70, 3, 5), (70, 5, 7)),
        ("zmk,zk->zm", (100, 4, 4), (100, 4)),
        ("zmk,zk->mz", (100, 4, 3), (100, 3)),
        ("zk,zk->z", (100, 3), (100, 3)),
        ("za,zb->zab", (70, 8), (70, 8)),
        ("zmk,znk->zmn", (70, 8, 8), (70, 8, 8)),
        ("zk,zkm->zm", (70, 3), (70, 3, 5)),
        ("yzk,zxk->zyx", (9, 70, 3), (70, 5, 3)),
    ],
)
def test_batches_of_small_products_match_the_reference(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(0)
    check_product(random_elements(rng, left, dtype), random_elements(rng, right, dtype), dims)


def test_vector_matrix_products_are_divided_between_workers() -> None:
    """Large matrices are divided along the contraction into four partial sums of full cache lines.
    Smaller ones are divided by columns, although each task reads only a few."""
    rng = np.random.default_rng(0)
    for size, tasks in ((1448, [4, 1]), (800, [4])):
        x, y = random_elements(rng, (size,), "f32"), random_elements(rng, (size, size), "f32")
        op = make_op(dot, *(TensorType(v.shape, "f32") for v in (x, y)), dims="k,kb->b")
        out = np.zeros(size, np.float32)
        phases = lower_and_run(RULES["dot"], op, [x, y], [out])
        assert phases is not None
        assert [phase.tasks for phase in phases] == tasks
        assert_product(out, x, y, "k,kb->b", op.result.type)


@pytest.mark.parametrize("size", [90, 362])
def test_complex_products_take_four_times_as_long_as_real_ones(size: int) -> None:
    """Each product of complex elements takes four multiplications and additions of real numbers, so
    that products of 90 by 90 matrices are divided into two tasks."""

    def phases(dtype: str) -> Sequence[Phase]:
        types = [TensorType((size, size), dtype)] * 2
        return lower_for_machine(RULES["dot"], make_op(dot, *types, dims="mk,kn->mn"), ZEN_5)

    real, complex = phases("f32"), phases("c64")
    assert 3 < complex[-1].cost / real[-1].cost <= 4
    if size == 90:
        assert [real[-1].tasks, complex[-1].tasks] == [1, 2]


@pytest.mark.parametrize("dims", ["mk,kn->mn", "km,kn->mn", "mk,nk->mn", "zmk,zkn->zmn"])
def test_packing_groups_do_not_change_bits(dims: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several row blocks use all groups in each part of the contraction; the bits do not depend on
    the group size."""
    rng = np.random.default_rng(0)
    sizes = {"z": 2, "m": 400, "k": 1100, "n": 330}
    left, right = (tuple(sizes[c] for c in term) for term in dims.partition("->")[0].split(","))
    x, y = random_elements(rng, left, "f32"), random_elements(rng, right, "f32")
    made = []
    for group in (1, 2, 3, 1000):
        monkeypatch.setattr(record_builder, "PANELS_PER_GROUP", group)
        made.append(check_product(x, y, dims))
    assert all(np.array_equal(made[0], each) for each in made[1:])


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64"])
@pytest.mark.parametrize("columns", [17, 33, 50, 70, 100, 113])
def test_remaining_vectors_of_columns_match_the_reference(columns: int, dtype: str) -> None:
    """The columns that do not fill a full tile use fewer vectors."""
    rng = np.random.default_rng(0)
    x, y = random_elements(rng, (21, 40), dtype), random_elements(rng, (40, columns), dtype)
    (name,) = kernels(x, y, "ak,kb->ab")
    assert name.startswith("unpacked_gemm_")


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_columns_use_as_few_vectors_as_possible(machine: HostDescription) -> None:
    """Seven vectors of columns are two tiles of three and one tile of one, not nine vectors."""
    (name,) = selected_kernels(machine, "ak,kb->ab", a=21, k=40, b=6 * machine.lanes(4) + 1)
    assert "x3" in name
    assert name.endswith("_last1")


@pytest.mark.parametrize("dims", ["k,kn->n", "mk,k->m"])
def test_large_matrices_are_divided_into_full_rows(dims: str) -> None:
    """Rows are contiguous, so each partial sum has several rows. A few long rows are not divided,
    because partial results would be as large as the matrix."""
    rng = np.random.default_rng(0)
    terms = dims.partition("->")[0].split(",")
    for lines, long, divided in ((1100, 1000, True), (20, 60_000, False)):
        sizes = {"k": lines, "n": long} if dims == "k,kn->n" else {"k": lines, "m": long}
        left, right = (random_elements(rng, tuple(sizes[c] for c in term), "f32") for term in terms)
        if dims == "mk,k->m":  # the transposed matrix
            left = np.ascontiguousarray(left.T).T
        assert (len(kernels(left, right, dims)) > 1) == divided


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "c64"])
@pytest.mark.parametrize("dims", ["km,kn->mn", "kn,km->mn"])
def test_few_columns_of_contiguous_rows_use_unpacked_kernels(dims: str, dtype: str) -> None:
    """The vectors run along the rows, and a copy transposes the result."""
    few = host_machine().lanes(8) - 1
    sizes = {"k": 70, "m": 203, "n": few}
    rng = np.random.default_rng(0)
    terms = dims.partition("->")[0].split(",")
    x, y = (random_elements(rng, tuple(sizes[c] for c in term), dtype) for term in terms)
    first, *copies = kernels(x, y, dims)
    assert first.startswith("unpacked_gemm_")
    assert len(copies) == (few > 1)


def test_few_rows_do_not_justify_packing() -> None:
    """Packing pays off if a strip of columns has conflicts in the L2 cache or comes from memory, or
    if there are many rows."""
    step = ZEN_5.l2_bytes // 16 // 4  # Rows at this distance conflict in the cache.
    for rows, inner, columns, packs in (
        (100, 400, 1000, False), (13, 400, 1024, False), (100, 150, step, True),
        (1000, 400, 1000, True),
    ):  # fmt: skip
        found = selected_kernels(ZEN_5, "mk,kn->mn", m=rows, k=inner, n=columns)
        assert any(name.startswith("packed_gemm_") for name in found) == packs
    many = selected_kernels(ZEN_5, "zmk,zkn->zmn", z=20, m=13, k=400, n=500)
    assert many[0].startswith("packed_gemm_")


@pytest.mark.parametrize("workers", [1, 2, 64])
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_every_product_has_kernels_on_every_machine(machine: HostDescription, workers: int) -> None:
    """The rule selects kernels for one and for many workers. Packed kernels use tiles with the
    vectors of the machine."""
    for dims, left, right in SHAPES:
        op = make_op(dot, TensorType(left, "f32"), TensorType(right, "f32"), dims=dims)
        assert selected_kernel_names(RULES["dot"], op, machine, workers)
    (name,) = {
        each
        for each in selected_kernels(machine, "mk,kn->mn", m=1000, k=1000, n=1000)
        if each.startswith("packed_gemm")
    }
    height, width = (int(size) for size in name.split("_")[5].split("x"))
    registers = 32 if machine.has_many_registers else 16
    assert registers // 2 <= height * width < registers

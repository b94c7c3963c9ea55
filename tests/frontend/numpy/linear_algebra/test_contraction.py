"""Products of vectors and matrices against NumPy; each product is one `dot`."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardir.errors import OperationTypeError
from shardir.frontend.errors import ArgumentError, AxisError, NotAnArrayError, ShapeError
from shardir.frontend.numpy import api as snp
from shardir.ir.types import dtype_name
from tests.frontend.numpy.linear_algebra.random_matrices import Matrices
from tests.namespace import check, close, eagerly, numpy_result, ops, run, trace, words

DRAWN = Matrices(11)
normal, plane = DRAWN.normal, DRAWN.complex_normal


def dims(fun: Any, *args: Any, **options: Any) -> list[str]:
    """Return the dimension numbers of the contractions that a call emits."""
    body = trace(fun, *args, **options)[0].function.body
    return [op.attrs["dims"] for op in body.ops if op.spec.name == "dot"]


MATMUL = [
    ((3,), (3,), "i,i->"),
    ((2, 3), (3,), "bi,i->b"),
    ((3,), (3, 4), "i,ih->h"),
    ((2, 3), (3, 4), "bi,ih->bh"),
    ((5, 2, 3), (5, 3, 4), "abi,aih->abh"),
    ((5, 2, 3), (3, 4), "abi,ih->abh"),
    ((2, 3), (5, 3, 4), "bi,aih->abh"),
    ((5, 1, 2, 3), (6, 3, 4), "abi,cih->acbh"),
    ((1, 2, 3), (5, 3, 4), "bi,aih->abh"),
    ((5, 2, 3), (3,), "abi,i->ab"),
    ((0, 3), (3, 4), "bi,ih->bh"),
    ((2, 0), (0, 4), "bi,ih->bh"),
    ((2, 1), (1, 4), "bi,ih->bh"),
]


@pytest.mark.parametrize(("left", "right", "expected"), MATMUL, ids=lambda x: str(x))
def test_matmul(left: Any, right: Any, expected: str) -> None:
    x, y = normal(*left), normal(*right)
    check("matmul", x, y)
    assert dims(snp.matmul, x, y) == [expected]
    assert set(ops(snp.matmul, x, y)) <= {"dot", "reshape"}


DOT = [
    ((3,), (3,)),
    ((2, 3), (3, 4)),
    ((2, 5, 3), (3,)),
    ((2, 5, 3), (6, 3, 4)),
    ((), (2, 3)),
    ((2,), ()),
]


@pytest.mark.parametrize("shapes", DOT, ids=str)
def test_dot(shapes: Any) -> None:
    check("dot", *(normal(*s) for s in shapes))


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((2, 3), (4, 3)), ((2, 5, 3), (3,)), ((), (3,))],
                         ids=str)  # fmt: skip
def test_inner(shapes: Any) -> None:
    check("inner", *(normal(*s) for s in shapes))


def test_vdot_and_vecdot_conjugate() -> None:
    check("vdot", plane(2, 3), plane(3, 2))
    check("vecdot", plane(4, 3), plane(3))
    check("vecdot", normal(2, 4, 3), normal(4, 3), axis=-1)
    check("vecdot", normal(3, 1, 5), normal(3, 4, 5), axis=0)
    check("vecdot", normal(2, 3), normal(2, 3), axis=0)


def test_outer_and_kron() -> None:
    check("outer", normal(2, 2), normal(3))
    assert np.signbit(run(snp.outer, np.array([-0.0], "f"), np.ones(2, "f"))).all()
    for left, right in [((2, 3), (4, 5)), ((2,), (3, 4)), ((2, 1, 2), (2,)), ((), (3,))]:
        check("kron", normal(*left), normal(*right))
    assert ops(snp.kron, normal(2, 3), normal(4, 5)) == ["dot", "reshape"]


@pytest.mark.parametrize("axes", [0, 1, 2, [[0], [1]], [[1, 2], [0, 1]], ([-1], [-2]), (2, 1)],
                         ids=str)  # fmt: skip
def test_tensordot(axes: Any) -> None:
    check("tensordot", normal(3, 3, 3), normal(3, 3, 4), axes)


CROSS = [
    ((3,), (3,), {}),
    ((4, 3), (3,), {}),
    ((3, 4), (3, 4), {"axis": 0}),
    ((2,), (3,), {}),
    ((3,), (2,), {}),
    ((5, 2), (5, 3), {}),
    ((3, 5), (5, 3), {"axisa": 0, "axisb": 1, "axisc": 0}),
]


def cross_in_space(left: Any, right: Any, **axes: int) -> Any:
    """Return NumPy's cross product; append a zero to vectors of two elements, which NumPy 2.5
    rejects.
    """
    left, right = (
        np.pad(each, [(0, 0)] * (each.ndim - 1) + [(0, 1)]) if each.shape[-1] == 2 else each
        for each in (left, right)
    )
    return np.cross(left, right, **axes)


@pytest.mark.parametrize(("left", "right", "options"), CROSS, ids=str)
def test_cross(left: Any, right: Any, options: Any) -> None:
    check("cross", normal(*left), normal(*right), reference=cross_in_space, **options)


def test_cross_of_vectors_of_two_elements_is_a_scalar() -> None:
    assert run(snp.cross, np.array([1, 2], "f"), np.array([3, 5], "f")) == -1


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 5])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (-1, 0)])
def test_trace(axes: tuple[int, int], offset: int) -> None:
    check("trace", normal(3, 4, 2), offset, *axes)
    check("trace", normal(3, 4), offset)
    check("trace", np.ones((3, 3), "i1"), offset)


EINSUMS = """
ij,jk->ik           23 34
ij,jk               23 34
bqhd,bkhd->bhqk     2534 2634
i,j->ij             2 3
ij,ij->             23 23
...ij,...jk->...ik  523 34
...ij,jk            523 34
b...,b...->b...     234 234
ij,kj->ki           23 43
ij,jk->k            23 34
i...,i...->...      314 351
ij,jk               21 34
ab,bc->ca           23 32
,ij                 - 23
ij->ji              23
ij->                23
ij->i               23
ii                  33
ii->i               33
iji->ij             343
...ii->...i         233
ijk->kji            234
ji                  23
...                 23
iii->i              333
i...->...           234
->                  -
ij,jk,kl->il        23 34 45
ij,jk,kl,lm         92 29 92 29
a,ab,b->            2 23 3
ii,ij,j->i          33 34 4
...i,ij,...j->...   52 23 53
bhqk,bkhd,hdo->bqo  2345 2536 367
a,b,c->cab          2 3 4
i,i,i->i            3 3 3
"""
"""Subscripts, and the shapes of the operands, a digit for each size."""


@pytest.mark.parametrize("line", EINSUMS.strip().splitlines())
def test_einsum(line: str) -> None:
    subscripts, *shapes = line.split()
    arrays = [normal(*map(int, shape.strip("-"))) for shape in shapes]
    check("einsum", subscripts, *arrays, rtol=1e-4)
    kinds = [np.round(x * 3).astype("i4") for x in arrays]
    check("einsum", subscripts, *kinds)
    check("einsum", subscripts, *(x > 0 for x in arrays))


def test_einsum_of_two_operands_is_one_dot() -> None:
    x, y = normal(2, 5, 3, 4), normal(2, 6, 3, 4)
    assert dims(snp.einsum, "bqhd,bkhd->bhqk", x, y) == ["bqhd,bkhd->bhqk"]
    assert ops(snp.einsum, "bqhd, bkhd -> bhqk", x, y) == ["dot"]


def test_einsum_multiplies_the_cheapest_pair_first() -> None:
    chain = [normal(*s) for s in [(9, 2), (2, 9), (9, 2), (2, 9)]]
    assert dims(snp.einsum, "ij,jk,kl,lm->im", *chain) == ["jk,kl->jl", "ij,jl->il", "il,lm->im"]


def test_einsum_reduces_unshared_letters_before_the_product() -> None:
    assert ops(snp.einsum, "ij,jk->j", normal(2, 3), normal(3, 4)) == ["sum", "sum", "dot"]


SUMS_OF_BYTES = [
    lambda x, y, **o: snp.einsum("ab,bc->c", x, y, **o),
    lambda x, y, **o: snp.einsum("ab,bc,cd->d", x, y, y.T, **o),
    lambda x, y, **o: snp.einsum("ab->", x, **o),
    lambda x, y, **o: snp.dot(x[0, 0], y, **o),
    lambda x, y, **o: snp.convolve(x.ravel(), y.ravel()[:9], **o),
    lambda x, y, **o: snp.correlate(x.ravel(), y.ravel()[:30], **o),
]


@pytest.mark.parametrize("function", SUMS_OF_BYTES)
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_sums_of_bytes_in_a_wider_type_do_not_wrap_around(function: Any, dtype: str) -> None:
    x, y = (np.random.default_rng(3).integers(-128, 128, s).astype(np.int8) for s in SIDES)
    found = function(x, y, preferred_element_type=dtype)
    exact = function(x.astype(np.int64), y.astype(np.int64), preferred_element_type=dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, exact)


SIDES = (6, 7), (7, 9)


def test_einsum_with_lists_of_axes() -> None:
    x, y = normal(2, 3), normal(3, 4)
    check("einsum", x, [0, 1], y, [1, 2], [2, 0])
    check("einsum", x, [0, 1], y, [1, 2])
    check("einsum", normal(5, 2, 3), [..., 0, 1], y, [1, 7], [..., 7, 0])


@pytest.mark.parametrize("multiply", [snp.dot, snp.inner])
@pytest.mark.parametrize(
    ("dtype", "scalar"), [("bfloat16", 1.7), ("float16", 3), ("int8", 3), ("bool", True)]
)
def test_products_with_python_numbers_are_those_of_elements(
    multiply: Any, dtype: str, scalar: float
) -> None:
    x = snp.arange(90).astype(dtype)
    for made in (multiply(x, scalar), multiply(scalar, x)):
        assert made.dtype == x.dtype
        np.testing.assert_array_equal(made, x * scalar)


def test_einsum_path_is_an_order_of_numpy_as_a_list_of_positions() -> None:
    chain = [normal(*s) for s in [(2, 3), (3, 4), (4, 3)]]
    optimal, greedy, given = [(0, 1), (0, 1)], [(1, 2), (0, 1)], [(0, 2), (0, 1)]
    cases: list[tuple[Any, Any]] = [
        ("auto", optimal), ("optimal", optimal), (True, optimal), ("greedy", greedy),
        (False, [(0, 1), (0, 1)]), (given, given),
    ]  # fmt: skip
    for chosen, expected in cases:
        order, report = snp.einsum_path("ij,jk,kl->il", *chain, optimize=chosen)
        assert order == expected
        form: Any = ["einsum_path", *expected]
        assert report == np.einsum_path("ij,jk,kl->il", *chain, optimize=form)[1]
    assert snp.einsum_path("ij,jk,kl->il", *chain)[0] == optimal


def test_einsum_path_compares_all_orders_of_few_operands_and_any_size_of_results() -> None:
    large = [normal(2, 5), normal(2, 5), normal(2, 2)]
    assert np.einsum_path("ac,ec,ea->c", *large, optimize="optimal")[0][1:] == [(0, 2), (0, 1)]
    for chosen in ("auto", "optimal", True):
        order, _ = snp.einsum_path("ac,ec,ea->c", *large, optimize=chosen)
        assert order == [(0, 1), (0, 1)]
    chain = [normal(*s) for s in [(2, 3), (3, 4), (4, 3), (3, 2), (2, 2)]]
    for count, chosen in [(3, "optimal"), (4, "optimal"), (5, "greedy")]:
        text = ",".join(["ij", "jk", "kl", "lm", "mn"][:count])
        orders = {
            name: snp.einsum_path(text, *chain[:count], optimize=name)[0]
            for name in ("optimal", "greedy", "auto")
        }
        assert orders["optimal"] != orders["greedy"]
        assert orders["auto"] == orders[chosen]


def test_einsum_path_without_optimization_is_the_order_of_the_operands() -> None:
    vectors = [normal(3) for _ in range(3)]
    assert snp.einsum_path("i,j,k->ijk", *vectors, optimize=False)[0] == [(0, 1), (0, 1)]


def test_accumulation_type() -> None:
    x = normal(3, 4).astype(ml_dtypes.bfloat16)
    wide = run(lambda a: snp.matmul(a, a.T, preferred_element_type=snp.float32), x)
    assert wide.dtype == np.float32
    close(wide, x.astype("f") @ x.astype("f").T)
    assert run(snp.einsum, "ij,kj->ik", x, x, preferred_element_type="float32").dtype == np.float32
    with pytest.raises(
        OperationTypeError, match=r"^preferred_element_type i8 is narrower than i32"
    ):
        snp.dot(np.ones((2, 3), "i4"), np.ones(3, "i4"), preferred_element_type=snp.int8)


def test_element_types() -> None:
    assert dtype_name(run(snp.matmul, np.ones((2, 2), "i1"), np.ones((2, 2), "i1")).dtype) == "i8"
    assert dtype_name(run(snp.dot, np.ones((2, 2), "i1"), normal(2)).dtype) == "f32"
    check("matmul", normal(2, 2) > 0, normal(2, 2) > 0)


DISAGREEING: list[tuple[str, Any, type[Exception], str]] = [
    (
        "matmul",
        [(2, 3), (4, 5)],
        ShapeError,
        r"axis 1 of shape \(2, 3\) with axis 0 of shape \(4, 5\), but 3 is not 4",
    ),
    ("matmul", [(2, 1), (3, 4)], ShapeError, "but 1 is not 3"),
    ("matmul", [(), (3, 4)], ShapeError, r"matmul takes no scalars, got shapes \(\) and \(3, 4\)"),
    ("matmul", [(2, 4, 3), (5, 3, 2)], OperationTypeError, r"shapes \(2,\) and \(5,\) do not"),
    ("dot", [(3,), (2,)], ShapeError, "dot multiplies axis 0"),
    ("vdot", [(3,), (2,)], ShapeError, "vdot multiplies axis 0"),
    ("inner", [(3, 2), (2, 3)], ShapeError, "inner multiplies axis 1"),
    ("tensordot", [(3, 2), (3, 3)], ShapeError, "tensordot multiplies axis 1"),
    ("cross", [(4,), (3,)], ShapeError, "cross takes vectors of 2 or 3 elements, got 4 along"),
    ("trace", [(4,)], AxisError, "axis 1 is out of range for an array of rank 1"),
]


@pytest.mark.parametrize(("name", "shapes", "kind", "told"), DISAGREEING)
def test_mismatched_shapes_are_errors(
    name: str, shapes: Any, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        run(getattr(snp, name), *(normal(*s) for s in shapes))


MEANINGLESS = [
    ("ij,jk", [(2, 3)], "names 2 operands, but there is 1 operand"),
    ("ij", [(2,)], "has 'ij' for an operand of rank 1"),
    ("i", [(2, 3)], "has 'i' for an operand of rank 2"),
    ("ij->ik", [(2, 3)], "has 'k' only after '->'"),
    ("ij->ii", [(2, 3)], "has 'i' twice after '->'"),
    ("i.j", [(2, 3)], "has 'i.j', which is not made of letters"),
]


@pytest.mark.parametrize(("subscripts", "shapes", "why"), MEANINGLESS)
def test_invalid_subscripts_are_errors(subscripts: str, shapes: Any, why: str) -> None:
    with pytest.raises(ArgumentError) as error:
        run(snp.einsum, subscripts, *(normal(*s) for s in shapes))
    assert str(error.value).startswith(f"einsum subscripts {subscripts!r}: {why}\n")


def test_mismatched_sizes_of_a_letter_are_errors() -> None:
    with pytest.raises(ShapeError) as error:
        run(snp.einsum, "ij,jk->ik", normal(2, 3), normal(4, 5))
    told = "einsum 'ij,jk->ik' of shapes (2, 3) and (4, 5): 'j' is both 3 and 4\n"
    assert str(error.value).startswith(told)


@pytest.mark.parametrize("shapes", [[(1, 4)], [(1, 4), (4, 4)]])
def test_a_diagonal_does_not_broadcast(shapes: Any) -> None:
    subscripts = ",".join(["ii"] * len(shapes)) + "->i"
    operands = [normal(*shape) for shape in shapes]
    with pytest.raises(ValueError, match="don't match"):
        np.einsum(subscripts, *operands)
    with pytest.raises(ShapeError) as error:
        run(snp.einsum, subscripts, *operands)
    described = " and ".join(map(str, shapes))
    assert str(error.value).splitlines()[0] == (
        f"einsum {subscripts!r} of shapes {described}: 'i' is both 1 and 4"
    )


def test_sizes_of_one_broadcast_to_diagonals() -> None:
    for subscripts, *shapes in (
        ("ii,i", (3, 3), (1,)),
        ("ii,i", (1, 1), (3,)),
        ("i,i", (1,), (0,)),
    ):
        operands = [normal(*shape) for shape in shapes]
        np.testing.assert_allclose(
            run(snp.einsum, subscripts, *operands), np.einsum(subscripts, *operands), rtol=1e-6
        )


def test_a_list_as_operand_is_an_error() -> None:
    with pytest.raises(NotAnArrayError, match=r"which is not an array; make it one with snp.array"):
        run(lambda x: snp.matmul(x, [1, 2, 3]), normal(3))


NORMS: list[tuple[Any, Any]] = [
    ((4,), {}),
    ((4,), {"ord": 1}),
    ((4,), {"ord": np.inf}),
    ((4,), {"ord": -np.inf}),
    ((4,), {"ord": 0}),
    ((4,), {"ord": 3}),
    ((4,), {"ord": -1}),
    ((2, 3), {}),
    ((2, 3), {"ord": "fro"}),
    ((2, 3), {"ord": 1}),
    ((2, 3), {"ord": -1}),
    ((2, 3), {"ord": np.inf}),
    ((2, 3), {"ord": -np.inf}),
    ((2, 3, 4), {}),
    ((2, 3, 4), {"axis": 1}),
    ((2, 3, 4), {"axis": 1, "ord": 1}),
    ((2, 3, 4), {"axis": (0, 2)}),
    ((2, 3, 4), {"axis": (2, 0), "ord": 1}),
    ((2, 3, 4), {"axis": (-1, 1), "ord": -np.inf}),
]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("shape", "options"), NORMS, ids=str)
def test_norms(shape: Any, options: Any, keepdims: bool) -> None:
    for x in (normal(*shape), plane(*shape)):
        expected = numpy_result(np.linalg.norm, x, keepdims=keepdims, **options)
        close(run(snp.linalg.norm, x, keepdims=keepdims, **options), expected)


def test_norms_of_the_array_api() -> None:
    x = normal(2, 3, 4)
    for options in ({}, {"axis": 1}, {"axis": (0, 2), "ord": 1}, {"axis": 0, "keepdims": True}):
        expected: Any = numpy_result(np.linalg.vector_norm, x, **options)
        close(run(snp.linalg.vector_norm, x, **options), np.asarray(expected))
    for order in ("fro", 1, np.inf):
        expected = numpy_result(np.linalg.matrix_norm, x, ord=order)
        close(run(snp.linalg.matrix_norm, x, ord=order), expected)
    assert run(snp.linalg.norm, np.array([3, 4], "i4")) == 5


def test_unsupported_norms_are_errors() -> None:
    with pytest.raises(ArgumentError, match="norm of matrices of ord='max' is not known; the"):
        run(snp.linalg.norm, normal(2, 3), ord="max")
    with pytest.raises(ArgumentError, match="norm of vectors takes a number as ord, got 'fro'"):
        run(snp.linalg.norm, normal(3), ord="fro")
    with pytest.raises(ShapeError, match="norm of ord=1 of an array of rank 3 needs axis="):
        run(snp.linalg.norm, normal(2, 3, 4), ord=1)


def test_multi_dot() -> None:
    chain = [normal(*s) for s in [(9, 2), (2, 9), (9, 2), (2, 9)]]
    close(run(snp.linalg.multi_dot, chain), np.linalg.multi_dot(chain), 1e-4)
    assert len(dims(snp.linalg.multi_dot, chain)) == 3
    ends = [normal(3), normal(3, 4), normal(4)]
    close(run(snp.linalg.multi_dot, ends), np.linalg.multi_dot(ends))
    with pytest.raises(ShapeError, match="multi_dot takes two or more matrices, got 1"):
        run(snp.linalg.multi_dot, [normal(3)])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_matrix_power(n: int) -> None:
    x = normal(2, 3, 3)
    close(run(snp.linalg.matrix_power, x, n), np.linalg.matrix_power(x, n), 1e-4)


def test_matrix_functions_use_the_last_two_axes() -> None:
    x = normal(4, 3, 3)
    close(run(snp.linalg.trace, x, offset=1), np.linalg.trace(x, offset=1))
    close(run(snp.linalg.diagonal, x, offset=-1), np.linalg.diagonal(x, offset=-1))
    close(run(snp.linalg.cross, x, x[::-1].copy()), np.linalg.cross(x, x[::-1]))
    close(run(snp.linalg.outer, x[0, 0], x[0, 1]), np.linalg.outer(x[0, 0], x[0, 1]))
    with pytest.raises(ShapeError, match=r"linalg.cross takes vectors of 3 elements"):
        run(snp.linalg.cross, normal(2), normal(2))
    assert {*words("matmul tensordot vecdot matrix_transpose")} <= set(dir(snp.linalg))


@pytest.mark.parametrize(
    ("subscripts", "shapes", "kept"),
    [
        ("...i->i", [(2, 3, 4)], "abi->i"),
        ("i...->i", [(2, 3, 4)], "iab->i"),
        ("...->", [(2, 3, 4)], "abi->"),
        ("...ij,...jk->ik", [(5, 2, 3), (5, 3, 4)], "aij,ajk->ik"),
        ("...i,i->i", [(2, 3), (3,)], "ai,i->i"),
    ],
)
def test_the_axes_of_a_dropped_ellipsis_are_summed(
    subscripts: str, shapes: list[tuple[int, ...]], kept: str
) -> None:
    arrays = [np.random.default_rng(1).standard_normal(shape).astype("f") for shape in shapes]
    expected = np.einsum(kept, *arrays)
    np.testing.assert_allclose(eagerly(snp.einsum, subscripts, *arrays), expected, rtol=1e-5)


def test_sizes_of_a_dropped_ellipsis_broadcast() -> None:
    x, y = np.ones((1, 3), "f"), np.arange(6, dtype="f").reshape(2, 3)
    np.testing.assert_array_equal(eagerly(snp.einsum, "...i,...i->i", x, y), y.sum(0))

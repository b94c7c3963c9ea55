"""Writing of sorts and index reductions with comparators."""

from shardir import (
    ops as ops,  # declares the operations
    ops as specs,
)
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.ir.types import COMPLEX, FLOATS, REAL_OF, TensorType
from shardir.stablehlo.writing.attributes import format_array, format_boolean, format_integer
from shardir.stablehlo.writing.regions import identity_literal, write_compare
from shardir.stablehlo.writing.writer import WRITERS, MlirWriter, TypedName

BOOL_SCALAR = TensorType((), "bool")


@WRITERS.rule(OPS["argmax"], OPS["argmin"])
def _position(w: MlirWriter, op: Op) -> None:
    """Reduce values and positions together: the first NaN, else the first extremum."""
    (x,) = op.operands
    value, index = x.type.with_shape(()), op.result.type.with_shape(())
    better = "GT" if op.spec is specs.argmax else "LT"
    boolean_ = value.with_dtype("bool")
    counted = w.write_step(
        "stablehlo.iota",
        [],
        x.type.with_dtype(index.dtype),
        {"iota_dimension": format_integer(op.attrs["dim"])},
    )

    def choose(a: TypedName, i: TypedName, b: TypedName, j: TypedName) -> list[TypedName]:
        wins = write_compare(w, better, a, b)
        draws = write_compare(w, "EQ", a, b)
        if value.dtype in FLOATS:
            wins = w.write_step("stablehlo.or", [wins, write_compare(w, "NE", a, a)], boolean_)
            neither = w.write_step(
                "stablehlo.and",
                [write_compare(w, "NE", a, a), write_compare(w, "NE", b, b)],
                boolean_,
            )
            draws = w.write_step("stablehlo.or", [draws, neither], boolean_)
        first = w.write_step("stablehlo.and", [draws, write_compare(w, "LT", i, j)], boolean_)
        only = w.write_step("stablehlo.not", [draws], boolean_)
        wins = w.write_step("stablehlo.and", [wins, only], boolean_)
        takes = w.write_step("stablehlo.or", [wins, first], boolean_)
        return [
            w.write_step("stablehlo.select", [takes, a, b], value),
            w.write_step("stablehlo.select", [takes, i, j], index),
        ]

    combine = "max" if op.spec is specs.argmax else "min"
    w.write_op(
        op,
        "stablehlo.reduce",
        {"dimensions": format_array([op.attrs["dim"]])},
        hidden=[op.result.type.with_dtype(x.type.dtype)],
        operands=[
            (w.name(x), x.type),
            counted,
            w.constant(identity_literal(combine, value.dtype), value),
            w.constant(0, index),
        ],
        regions=[w.small_region([value, index, value, index], choose)],
    )


@WRITERS.rule(OPS["sort"])
def _sort(w: MlirWriter, op: Op) -> None:
    """Compare the keys from major to minor; NaN is larger than all numbers."""
    types = [value.type.with_shape(()) for value in op.operands]
    pairs = [type for type in types for _ in range(2)]

    def before(*values: TypedName) -> list[TypedName]:
        decided: TypedName | None = None
        for key in reversed(range(op.attrs.get("keys", 1))):
            a, b = values[2 * key : 2 * key + 2]
            less, same = _less(w, a, b), _equal(w, a, b)
            if decided is not None:
                rest = w.write_step("stablehlo.and", [same, decided], BOOL_SCALAR)
                less = w.write_step("stablehlo.or", [less, rest], BOOL_SCALAR)
            decided = less
        assert decided is not None
        return [decided]

    attrs = {
        "dimension": format_integer(op.attrs["dim"]),
        "is_stable": format_boolean(op.attrs.get("stable", True)),
    }
    w.write_op(op, "stablehlo.sort", attrs, regions=[w.small_region(pairs, before)])


def _is_nan(w: MlirWriter, a: TypedName) -> TypedName:
    return write_compare(w, "NE", a, a)


def _less(w: MlirWriter, a: TypedName, b: TypedName) -> TypedName:
    """Return whether `a` is less than `b`:

    NaN is last, complex numbers compare real parts first.
    """
    dtype = a[1].dtype
    if dtype in COMPLEX:
        (ra, rb), (ia, ib) = _parts(w, a, b)
        later = w.write_step("stablehlo.and", [_equal(w, ra, rb), _less(w, ia, ib)], BOOL_SCALAR)
        return w.write_step("stablehlo.or", [_less(w, ra, rb), later], BOOL_SCALAR)
    less = write_compare(w, "LT", a, b)
    if dtype not in FLOATS:
        return less
    number = w.write_step("stablehlo.not", [_is_nan(w, a)], BOOL_SCALAR)
    last = w.write_step("stablehlo.and", [number, _is_nan(w, b)], BOOL_SCALAR)
    return w.write_step("stablehlo.or", [less, last], BOOL_SCALAR)


def _equal(w: MlirWriter, a: TypedName, b: TypedName) -> TypedName:
    dtype = a[1].dtype
    if dtype in COMPLEX:
        (ra, rb), (ia, ib) = _parts(w, a, b)
        return w.write_step("stablehlo.and", [_equal(w, ra, rb), _equal(w, ia, ib)], BOOL_SCALAR)
    same = write_compare(w, "EQ", a, b)
    if dtype not in FLOATS:
        return same
    both = w.write_step("stablehlo.and", [_is_nan(w, a), _is_nan(w, b)], BOOL_SCALAR)
    return w.write_step("stablehlo.or", [same, both], BOOL_SCALAR)


def _parts(w: MlirWriter, a: TypedName, b: TypedName) -> list[tuple[TypedName, TypedName]]:
    """Return the real parts of both values, and the imaginary parts of both."""
    part = TensorType((), REAL_OF[a[1].dtype])
    real, imag = (
        [w.write_step(f"stablehlo.{name}", [x], part) for x in (a, b)] for name in ("real", "imag")
    )
    return [(real[0], real[1]), (imag[0], imag[1])]

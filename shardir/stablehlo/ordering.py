"""Writing of sorts and index reductions with comparators."""

from shardir import ops as ops  # declares the operations
from shardir.ir import Op
from shardir.opset import OPS
from shardir.stablehlo.attributes import array, boolean, integer
from shardir.stablehlo.regions import compare, identity
from shardir.stablehlo.writer import RULES, Typed, Writer
from shardir.types import COMPLEX, FLOATS, REAL_OF, TensorType

YES = TensorType((), "bool")


@RULES.rule(OPS["argmax"], OPS["argmin"])
def _position(w: Writer, op: Op) -> None:
    """Reduce values and positions together: the first NaN, else the first extremum."""
    (x,) = op.operands
    value, index = x.type.with_shape(()), op.result.type.with_shape(())
    better = "GT" if op.name == "argmax" else "LT"
    boolean_ = value.with_dtype("bool")
    counted = w.step(
        "stablehlo.iota",
        [],
        x.type.with_dtype(index.dtype),
        {"iota_dimension": integer(op.attrs["dim"])},
    )

    def choose(a: Typed, i: Typed, b: Typed, j: Typed) -> list[Typed]:
        wins = compare(w, better, a, b)
        draws = compare(w, "EQ", a, b)
        if value.dtype in FLOATS:
            wins = w.step("stablehlo.or", [wins, compare(w, "NE", a, a)], boolean_)
            neither = w.step(
                "stablehlo.and", [compare(w, "NE", a, a), compare(w, "NE", b, b)], boolean_
            )
            draws = w.step("stablehlo.or", [draws, neither], boolean_)
        first = w.step("stablehlo.and", [draws, compare(w, "LT", i, j)], boolean_)
        only = w.step("stablehlo.not", [draws], boolean_)
        wins = w.step("stablehlo.and", [wins, only], boolean_)
        takes = w.step("stablehlo.or", [wins, first], boolean_)
        return [
            w.step("stablehlo.select", [takes, a, b], value),
            w.step("stablehlo.select", [takes, i, j], index),
        ]

    combine = "max" if op.name == "argmax" else "min"
    w.op(
        op,
        "stablehlo.reduce",
        {"dimensions": array([op.attrs["dim"]])},
        hidden=[op.result.type.with_dtype(x.type.dtype)],
        operands=[
            (w.name(x), x.type),
            counted,
            w.constant(identity(combine, value.dtype), value),
            w.constant(0, index),
        ],
        regions=[w.small_region([value, index, value, index], choose)],
    )


@RULES.rule(OPS["sort"])
def _sort(w: Writer, op: Op) -> None:
    """Compare the keys from major to minor; NaN is larger than all numbers."""
    types = [value.type.with_shape(()) for value in op.operands]
    pairs = [type for type in types for _ in range(2)]

    def before(*values: Typed) -> list[Typed]:
        decided: Typed | None = None
        for key in reversed(range(op.attrs.get("keys", 1))):
            a, b = values[2 * key : 2 * key + 2]
            less, same = _less(w, a, b), _same(w, a, b)
            if decided is not None:
                rest = w.step("stablehlo.and", [same, decided], YES)
                less = w.step("stablehlo.or", [less, rest], YES)
            decided = less
        assert decided is not None
        return [decided]

    attrs = {
        "dimension": integer(op.attrs["dim"]),
        "is_stable": boolean(op.attrs.get("stable", True)),
    }
    w.op(op, "stablehlo.sort", attrs, regions=[w.small_region(pairs, before)])


def _is_nan(w: Writer, a: Typed) -> Typed:
    return compare(w, "NE", a, a)


def _less(w: Writer, a: Typed, b: Typed) -> Typed:
    """Return whether `a` is less than `b`:

    NaN is last, complex numbers compare real parts first.
    """
    dtype = a[1].dtype
    if dtype in COMPLEX:
        (ra, rb), (ia, ib) = _parts(w, a, b)
        later = w.step("stablehlo.and", [_same(w, ra, rb), _less(w, ia, ib)], YES)
        return w.step("stablehlo.or", [_less(w, ra, rb), later], YES)
    less = compare(w, "LT", a, b)
    if dtype not in FLOATS:
        return less
    number = w.step("stablehlo.not", [_is_nan(w, a)], YES)
    last = w.step("stablehlo.and", [number, _is_nan(w, b)], YES)
    return w.step("stablehlo.or", [less, last], YES)


def _same(w: Writer, a: Typed, b: Typed) -> Typed:
    dtype = a[1].dtype
    if dtype in COMPLEX:
        (ra, rb), (ia, ib) = _parts(w, a, b)
        return w.step("stablehlo.and", [_same(w, ra, rb), _same(w, ia, ib)], YES)
    same = compare(w, "EQ", a, b)
    if dtype not in FLOATS:
        return same
    both = w.step("stablehlo.and", [_is_nan(w, a), _is_nan(w, b)], YES)
    return w.step("stablehlo.or", [same, both], YES)


def _parts(w: Writer, a: Typed, b: Typed) -> list[tuple[Typed, Typed]]:
    """Return the real parts of both values, and the imaginary parts of both."""
    part = TensorType((), REAL_OF[a[1].dtype])
    real, imag = (
        [w.step(f"stablehlo.{name}", [x], part) for x in (a, b)] for name in ("real", "imag")
    )
    return [(real[0], real[1]), (imag[0], imag[1])]

"""In which of its operands an operation is linear: whether a sum may be taken after it.

`f(a + b, w) = f(a, w) + f(b, w)` lets the parts of a sum go through `f` on different devices and
be added up afterwards. Joint linearity (`a + b`, `select`, `concatenate`) takes the parts of
several operands at once; a product is linear in each factor alone, while the other stays.

What an operation says about tangents says this too: `jvp=linear` is linear in all floating
operands at once, `jvp=multilinear` in each of them. Others declare `linear`. Only floating and
complex numbers count: whole numbers wrap, and no tangents are known for them.

Maxima and minima may wait as well, for operations that only choose among elements. Others that
never turn an order around do not count: a device that has nothing to compare holds an infinity,
and adding to that or taking a root of it can give NaN.
"""

from functools import lru_cache

from shardir.ir import Op
from shardir.opset import Attr, OpSpec
from shardir.tangents import linear, multilinear
from shardir.types import COMPLEX, INEXACT, TensorType

Groups = tuple[tuple[int, ...], ...]
"""Groups of operands; an operation is linear in the members of one group together."""

ROUNDS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
"""Digits of the floating types: a conversion to fewer of them is not linear enough."""


def groups_of(op: Op) -> Groups:
    """The groups of operands in which an operation is linear; none if it is not."""
    if len(op.results) != 1 or op.blocks or op.spec.edges:
        return ()
    types = tuple(value.type for value in op.operands)
    return _groups(op.spec, types, op.result.type, tuple(op.attrs.items()))


@lru_cache(maxsize=1 << 14)
def _groups(
    spec: OpSpec,
    operands: tuple[TensorType, ...],
    result: TensorType,
    attrs: tuple[tuple[str, Attr], ...],
) -> Groups:
    if result.dtype not in INEXACT:
        return ()
    moving = tuple(i for i, type in enumerate(operands) if type.dtype in INEXACT)
    if spec.linear is not None:
        declared = spec.linear(**dict(attrs)) if callable(spec.linear) else spec.linear
        return tuple(group for group in declared if all(i in moving for i in group))
    if not moving or any(_narrows(operands[i], result) for i in moving):
        return ()
    if spec.jvp is linear:
        return (moving,)
    if spec.jvp is multilinear:
        return tuple((i,) for i in moving)
    return ()


_MOVING = ("reshape", "transpose", "broadcast", "slice", "reverse")
_LARGEST, _SMALLEST = ("maximum", "or"), ("minimum", "and")
_JOINT = {"max": _LARGEST, "min": _SMALLEST}
_ALONE = {"max": _SMALLEST, "min": _LARGEST}
_FOLDS = {"max": ("max", "any"), "min": ("min", "all")}


def carries(op: Op, reduction: str) -> Groups:
    """The groups of operands whose parts may just as well be combined by `reduction` afterwards."""
    if reduction == "add":
        return groups_of(op)
    if reduction not in _JOINT or len(op.results) != 1 or op.blocks or op.spec.edges:
        return ()
    if op.name in ("or", "and") and op.result.type.dtype != "bool":
        return ()
    if op.name in _MOVING or op.name in _FOLDS[reduction]:
        return ((0,),)
    if op.name == "concatenate" or op.name in _JOINT[reduction]:
        return (tuple(range(len(op.operands))),)
    if op.name == "select":
        return ((1, 2),)
    return ((0,), (1,)) if op.name in _ALONE[reduction] else ()


def _narrows(source: TensorType, result: TensorType) -> bool:
    """Whether a conversion between the types rounds: then a sum comes before it."""
    a, b = source.dtype, result.dtype
    if a == b or a in COMPLEX or b in COMPLEX:
        return (a, b) == ("c128", "c64")
    return ROUNDS[b] < ROUNDS[a] or (a, b) == ("bf16", "f16")

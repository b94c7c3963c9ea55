"""Reinterpretation of the bits of an array as another element type."""

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import NotAnArrayError
from shardir.frontend.numpy.tracer_helpers.bitcasts import emit_bitcast
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, reshape, splat
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import COMPLEX, NUMPY_DTYPES, REAL_OF, TensorType


@public(static=("dtype",))
def view(x: ArrayLike, dtype: DTypeLike | None = None) -> Tracer:
    """Reinterpret the bits of `x` as another element type, in NumPy's memory layout.

    A narrower type makes the last dimension longer, a wider one shorter. Raise `OperationTypeError`
    if its size is not divisible, and `NotAnArrayError` for a shape.
    """
    sizes = dtype if isinstance(dtype, (tuple, list)) else (dtype,)
    if sizes and all(type(n) is int for n in sizes):
        shape = ", ".join(map(str, sizes))
        raise NotAnArrayError(
            with_location(
                f"view takes an element type, got {shape}; for another shape use x.reshape({shape})"
            )
        )
    tracer = as_tracer(x)
    have = tracer.value.type
    name = have.dtype if dtype is None else dtype_of(dtype)
    if name == have.dtype:
        return tracer
    if have.dtype in COMPLEX:
        return view(_interleave_parts(tracer), dtype)
    if have.dtype == "bool":
        return view(convert(tracer, "u8"), dtype)
    old, new = (DTYPE_INFO[each].bits for each in (have.dtype, name))
    if (not tracer.ndim and old != new) or (tracer.ndim and tracer.shape[-1] * old % new):
        raise OperationTypeError(
            with_location(f"{have} cannot be viewed as {name}: its last dimension does not divide")
        )
    if name in COMPLEX:
        return _pair_parts(view(tracer, NUMPY_DTYPES[REAL_OF[name]]))
    if name == "bool":
        single = view(tracer, NUMPY_DTYPES["u8"])
        return emit("ne", single, splat(0, single.value.type))
    if old == new:
        return emit_bitcast(tracer, name)
    *rest, last = tracer.shape
    long = (*rest, last * old // new)
    if old > new:
        return reshape(emit_bitcast(tracer, name), long)
    return emit_bitcast(reshape(tracer, (*long, new // old)), name)


@public()
def byteswap(x: ArrayLike) -> Tracer:
    """Return `x` with the bytes of each element in reverse order; of complex numbers, of each
    part."""
    tracer = as_tracer(x)
    have = tracer.value.type
    if have.dtype in COMPLEX:
        return emit("complex", *(byteswap(emit(part, tracer)) for part in ("real", "imag")))
    if have.numpy.itemsize == 1:
        return tracer
    octets = emit("bitcast", tracer, result=TensorType((*have.shape, have.numpy.itemsize), "u8"))
    swapped = emit("reverse", octets, dims=(len(have.shape),))
    result: Tracer = emit("bitcast", swapped, result=have)
    return result


def _interleave_parts(x: Tracer) -> Tracer:
    """Return complex numbers as interleaved real and imaginary parts."""
    shape = x.shape
    parts = [reshape(emit(part, x), (*shape, 1)) for part in ("real", "imag")]
    both = emit("concatenate", *parts, dim=len(shape))
    return reshape(both, (*shape[:-1], shape[-1] * 2) if shape else (2,))


def _pair_parts(x: Tracer) -> Tracer:
    """Return complex numbers from interleaved real and imaginary parts."""
    result: Tracer = emit("complex", x[..., 0::2], x[..., 1::2])
    return result

"""Complete Triton's interpreter where it lacks functions or differs from GPUs.

With TRITON_INTERPRET=1 kernels run on the CPU, in NumPy. This file patches the interpreter of
Triton 3.9: it implements libdevice's functions (empty there), rounds f32 to bf16 to nearest (there
truncated), multiplies matrices of bf16 (there their bits as integers) and of f32 with the precision
`bf16x6` (there refused; computed in f32), keeps broadcast booleans
boolean (there of the compared type), reduces by halves (there element by element), warns of no
infinities, and calls helper functions without patching the whole language for each call.
It does not need shardir, so that emitted programs can contain it.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter

Array: TypeAlias = npt.NDArray[Any]
Tensor: TypeAlias = tl.tensor


def complete_interpreter() -> None:
    """Patch the interpreter; further calls have no effect."""
    for name, function in {**UNARY, **BINARY}.items():
        setattr(libdevice, name, _on_tensors(function))
    for name, (function, dtype) in TYPED.items():
        setattr(libdevice, name, _on_tensors(function, dtype))
    interpreter.InterpreterBuilder.create_fp_trunc = _fp_trunc
    interpreter.InterpreterBuilder.create_splat = _splat
    interpreter.InterpreterBuilder.create_dot = _dot
    options = interpreter.interpreter_builder.options
    precisions = tuple(dict.fromkeys((*options.allowed_dot_input_precisions, "bf16x6")))
    interpreter.interpreter_builder.options = replace(
        options, allowed_dot_input_precisions=precisions
    )
    interpreter.InterpreterBuilder.binary_op = QUIET_BINARY_OP
    interpreter.ReduceOps.generic_reduce = _generic_reduce
    interpreter.InterpretedFunction.__call__ = _call


def _on_tensors(
    function: Callable[..., Array], dtype: tl.dtype | None = None
) -> Callable[..., Tensor]:
    """Return an array function as one on Triton's tensors; Python numbers become f32,
    as in Triton.
    """

    def apply(*args: Tensor | float) -> Tensor:
        tensors = [interpreter.interpreter_semantic.to_tensor(arg) for arg in args]
        with np.errstate(all="ignore"):
            data = np.asarray(function(*(tensor.handle.data for tensor in tensors)))
        element = dtype or tensors[0].dtype
        data = data.astype(interpreter._get_np_dtype(element), copy=False)
        shaped = [tensor for tensor in tensors if tensor.type.is_block()]
        type = tl.block_type(element, list(data.shape)) if shaped else element
        return tl.tensor(interpreter.TensorHandle(data, element), type)

    return apply


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a Python function applied to every element."""
    return np.vectorize(function, otypes=[np.float64])


def _lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def _erf_inv(x: float) -> float:
    """Return the inverse error function: a quantile of the normal distribution and a
    Newton step.
    """
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    guess = statistics.NormalDist().inv_cdf((abs(x) + 1) / 2) / math.sqrt(2)
    derivative = 2 / math.sqrt(math.pi) * math.exp(-guess * guess)
    return math.copysign(guess - (math.erf(guess) - abs(x)) / derivative, x)


def _clz(x: Array) -> Array:
    bits = x.dtype.itemsize * 8
    smeared = x.view(f"u{x.dtype.itemsize}")
    for step in (1, 2, 4, 8, 16, 32):
        if step < bits:
            smeared = smeared | (smeared >> smeared.dtype.type(step))
    zeros: Array = bits - np.bitwise_count(smeared).astype(np.int32)
    return zeros


def _rz(x: Array) -> Array:
    """Round to f32 towards zero."""
    near = x.astype(np.float32)
    wide = near.astype(np.longdouble)
    return np.where(np.abs(wide) > np.abs(x.astype(np.longdouble)), _inward(near), near)


def _inward(x: Array) -> Array:
    return np.nextafter(x, np.float32(0))


UNARY: dict[str, Callable[..., Array]] = {
    **{
        name: getattr(np, name)
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log1p", "cbrt", "sin", "cos", "tan"),
            *("sinh", "cosh", "tanh", "rint"),
        )
    },
    **{
        name: getattr(np, f"arc{name[1:]}")
        for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")
    },
    "sqrt_rn": np.sqrt,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "erfinv": _each(_erf_inv),
    "lgamma": _each(_lgamma),
}
BINARY: dict[str, Callable[..., Array]] = {
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "pow": np.power,
}
QUIET_BINARY_OP = np.errstate(all="ignore")(interpreter.InterpreterBuilder.binary_op)
"""The interpreter's arithmetic, without NumPy's warnings."""
TYPED: dict[str, tuple[Callable[..., Array], tl.dtype]] = {
    "popc": (lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")), tl.int32),
    "clz": (_clz, tl.int32),
    "double2float_rz": (_rz, tl.float32),
    "ll2float_rz": (_rz, tl.float32),
    "ull2float_rz": (_rz, tl.float32),
    "float2ll_rz": (lambda x: x.astype(np.int64), tl.int64),
    "float2ull_rz": (lambda x: x.astype(np.uint64), tl.uint64),
}


def _fp_trunc(
    builder: interpreter.InterpreterBuilder, source: interpreter.TensorHandle, type: tl.dtype
) -> interpreter.TensorHandle:
    """Convert to a narrower float type, rounding to nearest even."""
    if type.scalar != tl.bfloat16:
        with np.errstate(all="ignore"):
            return builder.cast_impl(source, type)
    assert source.dtype.scalar == tl.float32, "only f32 becomes bf16"
    bits = source.data.view(np.uint32).astype(np.uint64)
    half = np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))
    short = ((bits + half) >> np.uint64(16)).astype(np.uint16)
    quiet = ((bits >> np.uint64(16)) | np.uint64(0x40)).astype(np.uint16)
    data = np.where(np.isnan(source.data), quiet, short)
    return interpreter.TensorHandle(data, tl.bfloat16)


def _splat(
    builder: interpreter.InterpreterBuilder, type: tl.block_type, source: interpreter.TensorHandle
) -> interpreter.TensorHandle:
    """Broadcast one number to a tile, in the type of its data."""
    data = np.full(type.shape, np.ravel(source.data)[0])
    return interpreter.TensorHandle(data, source.dtype.scalar)


def _dot(
    builder: interpreter.InterpreterBuilder,
    a: interpreter.TensorHandle,
    b: interpreter.TensorHandle,
    d: interpreter.TensorHandle,
    *options: object,
) -> interpreter.TensorHandle:
    """Multiply matrices and add `d`, in the type of `d`."""
    with np.errstate(all="ignore"):
        x, y = (_wide_data(handle).astype(d.data.dtype) for handle in (a, b))
        return interpreter.TensorHandle(np.matmul(x, y) + d.data, d.dtype.scalar)


def _wide_data(handle: interpreter.TensorHandle) -> Array:
    """Return the numbers of a tile; those of bf16, which is stored as its bits, as f32."""
    if handle.dtype.scalar != tl.bfloat16:
        return np.asarray(handle.data)
    bits: Array = handle.data.astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)


def _call(function: interpreter.InterpretedFunction, *args: object, **options: object) -> object:
    """Call a helper function of a kernel: the kernel's launch has already patched the language."""
    return function.rewrite()(*args, **options)


def _generic_reduce(reduction: interpreter.ReduceOps, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Combine halves of the reduced dimension, a power of two, until one element remains."""
    data = [np.moveaxis(tensor.handle.data, reduction.axis, 0) for tensor in tensors]
    while data[0].shape[0] > 1:
        middle = data[0].shape[0] // 2
        halves = [
            reduction.to_tensor(half, tensor.dtype)
            for part in (slice(middle), slice(middle, None))
            for half, tensor in zip((x[part] for x in data), tensors, strict=True)
        ]
        made = reduction.combine_fn.fn(*halves)
        data = [tensor.handle.data for tensor in (made if isinstance(made, tuple) else (made,))]
    if reduction.keep_dims:
        data = [np.moveaxis(x, 0, reduction.axis) for x in data]
    else:
        data = [x[0] for x in data]
    return [reduction.to_tensor(x, t.dtype) for x, t in zip(data, tensors, strict=True)]

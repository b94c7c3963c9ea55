"""Elementwise operations compiled on their own and run on arrays, beside the reference."""

import ctypes
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.codegen.compiler import compile
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.kernels.math import library
from shardir.backends.cpu.kernels.math.inline import emit_elementwise
from shardir.backends.cpu.kernels.math.registers import load_elements, store_elements
from shardir.ir.operation import OPS
from shardir.ir.types import FLOATS, NUMPY_DTYPES, TensorType

Array = npt.NDArray[Any]


@cache
def compiled(op: str, dtypes: tuple[str, ...], result: str, lanes: int) -> Any:
    """`void (ptr *arrays, i64 count)` that applies the operation; `None` where it has no rule."""
    module = LLVMModule()
    f = LLVMFunction(module, "apply", ["ptr", "i64"])
    arrays, count = f.params
    at = [f.load(f.offset(arrays, 8 * i), "ptr") for i in range(len(dtypes) + 1)]
    sizes = [NUMPY_DTYPES[dtype].itemsize for dtype in (*dtypes, result)]
    with f.loop(0, count, lanes) as i:
        places = [f.offset(p, i * size) for p, size in zip(at, sizes, strict=True)]
        held = [load_elements(f, p, d, lanes) for p, d in zip(places, dtypes, strict=False)]
        made = emit_elementwise(f, op, {}, held, dtypes, result)
        if made is None:
            return None
        store_elements(f, made, places[-1], result)
    f.ret()
    imports = library.function_addresses(library.imported_symbols(module))
    code = compile(module.text(), ["apply"], imports)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code["apply"])


def applied(op: str, arrays: list[Array], dtypes: list[str], result: str, lanes: int = 16) -> Array:
    """The operation on flat arrays of one size; raises `AssertionError` where it has no rule."""
    entry = compiled(op, tuple(dtypes), result, lanes)
    assert entry is not None, f"no rule for {op} of {', '.join(dtypes)}"
    size = arrays[0].size
    whole = -(-size // lanes) * lanes
    padded = [np.resize(a, whole) for a in arrays]
    out = np.empty(whole, NUMPY_DTYPES[result])
    table = np.array([a.ctypes.data for a in (*padded, out)], np.int64)
    entry(table.ctypes.data, whole)
    return out[:size]


def expected(op: str, arrays: list[Array], result: str) -> Array:
    """What the reference interpreter gives."""
    type = TensorType(arrays[0].shape, result)
    reference = OPS[op].reference
    assert reference is not None
    with np.errstate(all="ignore"):
        return np.asarray(reference(*arrays, result=type))


def same(got: Array, wanted: Array) -> Array:
    """Where two arrays have the same bits, all NaN taken as one."""
    if got.dtype.kind == "c":
        return same(got.real, wanted.real) & same(got.imag, wanted.imag)
    bits = np.dtype(f"u{got.dtype.itemsize}")
    equal = np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(wanted).view(bits)
    if got.dtype.kind in "iub":
        return np.asarray(equal)
    with np.errstate(invalid="ignore"):
        return np.asarray(equal | (np.isnan(got) & np.isnan(wanted)))


def specials(dtype: str) -> Array:
    """Numbers where functions bend: limits, zeros, subnormals, halves, infinities, NaN."""
    type = NUMPY_DTYPES[dtype]
    if dtype == "bool":
        return np.array([False, True])
    if type.kind in "iu":
        least, most = np.iinfo(type).min, np.iinfo(type).max
        near = [least, least + 1, most, most - 1, most // 2]
        return np.array([0, 1, 2, 3, 5, 7, 8, 9, 31, 33, 63, 65, 100, *near], type)
    part = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
    if part == "bf16":
        limits = (1.1754943508222875e-38, 9.183549615799121e-41, 3.3895313892515355e38)
    else:
        info = np.finfo(NUMPY_DTYPES[part])
        limits = (float(info.tiny), float(info.smallest_subnormal), float(info.max))
    tiny, small, large = limits
    sizes = [0.0, small, 3 * small, tiny, 1e-3, 0.25, 0.5, 1.0, 1.5, 2.5, 3.0, 7.5, 100.0, large]
    numbers = np.array([*sizes, np.inf], np.float64)
    real = np.concatenate([numbers, -numbers, [np.nan]]).astype(NUMPY_DTYPES[part])
    if part == dtype:
        return real
    a, b = (x.reshape(-1) for x in np.meshgrid(real, real))
    whole = np.empty(a.size, type)
    whole.real, whole.imag = a, b
    return whole


def some(dtype: str, count: int, seed: int = 0) -> Array:
    """Random numbers of any bits, and of sizes around one."""
    rng = np.random.default_rng(seed)
    type = NUMPY_DTYPES[dtype]
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(np.bool_)
    bits = rng.integers(0, 256, count * type.itemsize, np.uint8).view(type)
    if type.kind in "iu":
        small = rng.integers(0, 100, count).astype(type)
        return np.where(rng.integers(0, 2, count) == 0, small, bits)
    if dtype in FLOATS:
        return np.where(rng.integers(0, 2, count) == 0, rng.normal(0, 3, count).astype(type), bits)
    normal = rng.normal(0, 2, count) + 1j * rng.normal(0, 2, count)
    return normal.astype(type)


def pairs(dtype: str, count: int = 3000) -> tuple[Array, Array]:
    """Operands of a binary operation: all pairs of special numbers, and random ones."""
    edge = specials(dtype)[:80]
    x, y = (a.reshape(-1) for a in np.meshgrid(edge, edge))
    return (
        np.concatenate([x, some(dtype, count, 1)]),
        np.concatenate([y, some(dtype, count, 2)]),
    )

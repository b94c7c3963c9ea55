"""Compile single elementwise operations, run them on arrays, and compute the reference results."""

import ctypes
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.codegen.compiler import compile
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.math import library
from shardir.backends.cpu.kernels.math.inline import emit_elementwise
from shardir.backends.cpu.kernels.math.registers import load_elements, store_elements
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.dtype_groups import FLOATS

Array = npt.NDArray[Any]


@cache
def compile_operation(
    op: str, dtypes: tuple[str, ...], result: str, lanes: int, machine: HostDescription
) -> Any:
    """Return `void (ptr *arrays, i64 count)`, which applies the operation, or None without a
    rule."""
    module = LLVMModule(machine)
    f = LLVMFunction(module, "apply", ["ptr", "i64"])
    arrays, count = f.params
    at = [f.load(f.offset(arrays, 8 * i), "ptr") for i in range(len(dtypes) + 1)]
    sizes = [NUMPY_DTYPES[dtype].itemsize for dtype in (*dtypes, result)]
    with f.loop(0, count, lanes) as i:
        addresses = [f.offset(p, i * size) for p, size in zip(at, sizes, strict=True)]
        operands = [load_elements(f, p, d, lanes) for p, d in zip(addresses, dtypes, strict=False)]
        result_vector = emit_elementwise(f, op, {}, operands, dtypes, result)
        if result_vector is None:
            return None
        store_elements(f, result_vector, addresses[-1], result)
    f.ret()
    imports = library.function_addresses(machine, library.imported_symbols(module))
    code = compile(machine, module.text(), ["apply"], imports)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code["apply"])


def run_operation(
    op: str,
    arrays: list[Array],
    dtypes: list[str],
    result: str,
    lanes: int = 16,
    machine: HostDescription | None = None,
) -> Array:
    """Apply an operation to flat arrays of equal size; raise `AssertionError` without a rule.

    Instructions are selected for `machine`, by default this host.
    """
    entry = compile_operation(op, tuple(dtypes), result, lanes, machine or host_machine())
    assert entry is not None, f"no rule for {op} of {', '.join(dtypes)}"
    size = arrays[0].size
    padded_size = -(-size // lanes) * lanes
    padded = [np.resize(a, padded_size) for a in arrays]
    out = np.empty(padded_size, NUMPY_DTYPES[result])
    table = np.array([a.ctypes.data for a in (*padded, out)], np.int64)
    entry(table.ctypes.data, padded_size)
    return out[:size]


def reference_result(op: str, arrays: list[Array], result: str) -> Array:
    """Return the result of the reference interpreter."""
    type = TensorType(arrays[0].shape, result)
    reference = OPS[op].reference
    assert reference is not None
    with np.errstate(all="ignore"):
        return np.asarray(reference(*arrays, result=type))


def have_equal_bits(got: Array, expected: Array) -> Array:
    """Return where two arrays have equal bits; all NaNs are equal."""
    if got.dtype.kind == "c":
        return have_equal_bits(got.real, expected.real) & have_equal_bits(got.imag, expected.imag)
    if got.dtype.type is np.void:
        return np.asarray(got == expected)
    bits = np.dtype(f"u{got.dtype.itemsize}")
    equal = np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(expected).view(bits)
    if got.dtype.kind in "iub":
        return np.asarray(equal)
    with np.errstate(invalid="ignore"):
        return np.asarray(equal | (np.isnan(got) & np.isnan(expected)))


def special_values(dtype: str) -> Array:
    """Return special arguments: limits, zeros, subnormals, halves, infinities, NaN."""
    type = NUMPY_DTYPES[dtype]
    if dtype == "bool":
        return np.array([False, True])
    if type.kind in "iu":
        least, most = np.iinfo(type).min, np.iinfo(type).max
        near = [least, least + 1, most, most - 1, most // 2]
        return np.array([0, 1, 2, 3, 5, 7, 8, 9, 31, 33, 63, 65, 100, *near], type)
    if type.type is np.void:
        patterns = [bytes(type.itemsize), b"\xff" * type.itemsize, bytes(range(type.itemsize))]
        return np.array(patterns, type)
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
    padded_size = np.empty(a.size, type)
    padded_size.real, padded_size.imag = a, b
    return padded_size


def random_values(dtype: str, count: int, seed: int = 0) -> Array:
    """Return random arguments: random bits, and numbers around one."""
    rng = np.random.default_rng(seed)
    type = NUMPY_DTYPES[dtype]
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(np.bool_)
    bits = rng.integers(0, 256, count * type.itemsize, np.uint8).view(type)
    if type.type is np.void:
        return bits
    if type.kind in "iu":
        small = rng.integers(0, 100, count).astype(type)
        return np.where(rng.integers(0, 2, count) == 0, small, bits)
    if dtype in FLOATS:
        return np.where(rng.integers(0, 2, count) == 0, rng.normal(0, 3, count).astype(type), bits)
    normal = rng.normal(0, 2, count) + 1j * rng.normal(0, 2, count)
    return normal.astype(type)


def operand_pairs(dtype: str, count: int = 3000) -> tuple[Array, Array]:
    """Return operands of a binary operation: all pairs of special values, and random values."""
    edge = special_values(dtype)[:80]
    x, y = (a.reshape(-1) for a in np.meshgrid(edge, edge))
    return (
        np.concatenate([x, random_values(dtype, count, 1)]),
        np.concatenate([y, random_values(dtype, count, 2)]),
    )

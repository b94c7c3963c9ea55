"""Microbenchmarks of single operations of the CPU backend, and of the call of a program.

Elementwise operations and reductions run on arrays in the cache, so that their time is that of
their arithmetic; the memory bandwidth determines the time of larger ones. One size is so small that
one thread computes it, the other so large that all threads share it. The times of sorts,
cumulative sums and transposes include their traffic, so they are measured at several sizes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.lax import api as lax
from shardir.frontend.nn.attention import dot_product_attention
from shardir.frontend.profiling.microbenchmark import Key, Microbenchmark

UNARY = (
    *("sqrt", "rsqrt", "cbrt", "exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic"),
    *("sin", "cos", "tan", "atan", "erf", "erfc", "erf_inv"),
)
BINARY = ("div", "pow", "rem", "atan2")
REDUCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(axis=1),
    "max": lambda x: x.max(axis=1),
    "min": lambda x: x.min(axis=1),
}
SIZED = ("cumsum", "transpose", "sort")
"""The operations whose time includes their traffic."""
CACHED_SHAPES = ((32, 1024), (256, 1024))
"""The shapes of the operands of an elementwise operation or a reduction."""
READ_BYTES = tuple(12288 << shift for shift in (3, 5, 7, 9, 10, 11, 12, 13))
"""The bytes of the operand of a reduction that measures the bandwidth of reads."""
CUMULATED_ROWS = (16, 256, 2048, 8192, 24576)
CUMULATED_LENGTH = 1024
MAX_OPERAND_BYTES = 128 << 20
"""The bytes of the largest operand of a cumulative sum or a transpose."""
TRANSPOSED_SIZES = (64, 256, 1024, 2048, 3072, 5120)
"""The rows and columns of transposed matrices."""
SORTED_LENGTHS = (16, 64, 256, 1024, 2048, 8192, 65536)
SORTED_ELEMENTS = 1 << 19
ATTENTION_LENGTH = 512
ATTENTION_SHAPE = (1, ATTENTION_LENGTH, 2, 64)
"""Batch, length, heads and size of a head of the attention that measures masked scores."""
LAYER_COUNT = 8
"""The number of pairs of arrays that the call with several arrays has."""
DTYPES: Mapping[str, np.dtype[Any]] = {"default": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def list_operations() -> dict[Key, Microbenchmark]:
    """Return the benchmarks of operations. The keys state the operation in their section, the dtype
    and the size."""
    found: dict[Key, Microbenchmark] = {}
    for name, dtype in DTYPES.items():
        found |= _list_cached(name, dtype)
        found |= _list_sized(name, dtype)
    for nbytes in READ_BYTES:
        vector = from_numpy(np.ones(nbytes // 4, DTYPES["default"]))
        found["read", "", 1, float(nbytes)] = Microbenchmark(jit(lambda x: x.max()), (vector,))
    return found


def list_attention() -> dict[Key, Microbenchmark]:
    """Return the benchmarks of attention with a causal mask (1) and without one (0)."""
    queries = _draw(ATTENTION_SHAPE, DTYPES["default"])

    def attend(is_causal: bool) -> Callable[[Any], Any]:
        return jit(lambda q: dot_product_attention(q, q, q, is_causal=is_causal))

    return {
        ("attention", "", 1, float(is_causal)): Microbenchmark(attend(is_causal), (queries,))
        for is_causal in (False, True)
    }


def list_calls() -> dict[Key, Microbenchmark]:
    """Return the benchmarks of calls with one array, and with arrays in nested dictionaries, by the
    number of arrays among arguments and results."""
    small = _draw((4,), DTYPES["default"])
    nested = {f"layer {i}": {"w": small, "b": {"inner": small}} for i in range(LAYER_COUNT)}

    def increment_all(arrays: Any) -> Any:
        if isinstance(arrays, dict):
            return {key: increment_all(each) for key, each in arrays.items()}
        return arrays + 1

    return {
        ("arrays", "", 1, float(count)): Microbenchmark(jit(increment_all), (arrays,))
        for count, arrays in ((2, small), (4 * LAYER_COUNT, nested))
    }


def masked_edge(full: float, causal: float) -> float:
    """Return the columns that attention computes in each row in addition to the visible ones, from
    the times of attention without a mask and with a causal one."""
    return max(causal / full - 0.5, 0.0) * ATTENTION_LENGTH


def _list_cached(name: str, dtype: np.dtype[Any]) -> dict[Key, Microbenchmark]:
    """Return the benchmarks of elementwise operations and reductions on arrays in the cache."""
    functions: dict[str, Callable[..., Any]] = {
        **{word: jit(getattr(lax, word)) for word in (*UNARY, *BINARY)},
        **{word: jit(function) for word, function in REDUCTIONS.items()},
    }
    found: dict[Key, Microbenchmark] = {}
    for shape in CACHED_SHAPES:
        x, size = _make_operand(dtype, shape), float(np.prod(shape))
        for word, function in functions.items():
            arguments = (x, x) if word in BINARY else (x,)
            found[word, name, 1, size] = Microbenchmark(function, arguments)
    return found


def _list_sized(name: str, dtype: np.dtype[Any]) -> dict[Key, Microbenchmark]:
    """Return the benchmarks of operations whose time includes their traffic."""
    found: dict[Key, Microbenchmark] = {}
    max_elements = MAX_OPERAND_BYTES // dtype.itemsize
    for rows in (n for n in CUMULATED_ROWS if n * CUMULATED_LENGTH <= max_elements):
        matrix = from_numpy(np.ones((rows, CUMULATED_LENGTH), dtype))
        key = ("cumsum", name, 1, float(rows * CUMULATED_LENGTH))
        found[key] = Microbenchmark(jit(lambda x: x.cumsum(axis=1)), (matrix,))
    for n in (n for n in TRANSPOSED_SIZES if n * n <= max_elements):
        key = ("transpose", name, 1, float(n * n))
        found[key] = Microbenchmark(jit(lambda x: x.T), (from_numpy(np.ones((n, n), dtype)),))
    for length in SORTED_LENGTHS:
        matrix = _draw((SORTED_ELEMENTS // length, length), dtype)
        found["sort", name, 1, float(length)] = Microbenchmark(
            jit(lambda x: lax.sort(x, dimension=1)), (matrix,)
        )
    return found


def list_operation_keys(measured: Iterable[Key]) -> list[Key]:
    """Return the keys of benchmarks of operations, sorted by operation, dtype and size."""
    names = {*UNARY, *BINARY, *REDUCTIONS, *SIZED}
    return sorted(key for key in measured if key[0] in names)


def elements_of(key: Key) -> float:
    """Return the elements that the benchmark of an operation processes."""
    return SORTED_ELEMENTS if key[0] == "sort" else key[3]


def _draw(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return an array of uniform random numbers."""
    return from_numpy(np.random.default_rng(0).random(shape, np.float32).astype(dtype))


def _make_operand(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Return an array of numbers between 0.05 and 0.95, for which all measured operations are
    defined."""
    size = int(np.prod(shape))
    return from_numpy(np.linspace(0.05, 0.95, size, dtype=dtype).reshape(shape))

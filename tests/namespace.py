"""Comparison of functions of the namespace with NumPy's, traced and eagerly."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import optree

from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.numpy import api as snp
from shardir.frontend.tracing.function_tracing import TracedFunction, trace_program
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.promotion import canonical_dtype
from shardir.interpret.interpreter import evaluate
from shardir.ir.types import NUMPY_DTYPES, TensorType, dtype_name

Array = npt.NDArray[Any]

TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-5, "c64": 2e-5}


def words(text: str) -> list[str]:
    """Split a table of names."""
    return text.split()


def trace(fun: Callable[..., Any], *args: Any, **options: Any) -> tuple[TracedFunction, Any]:
    """Trace `fun` with a parameter for each NumPy array; return also the result structure."""
    call: Any = (args, options)
    leaves, structure = optree.tree_flatten(call, none_is_leaf=True)
    arrays = [x for x in leaves if isinstance(x, np.ndarray)]
    found = []

    def body(tracers: list[Any]) -> list[Any]:
        rest = iter(tracers)
        filled = [next(rest) if isinstance(x, np.ndarray) else x for x in leaves]
        positional, keywords = optree.tree_unflatten(structure, filled)
        results, kind = optree.tree_flatten(fun(*positional, **keywords))
        found.append(kind)
        return [as_tracer(x) for x in results]

    params = [
        (f"x{i}", AbstractValue(TensorType(x.shape, dtype_name(x.dtype))))
        for i, x in enumerate(arrays)
    ]
    return trace_program(body, params, "program"), found[0]


def run(fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Trace `fun(*args, **options)` and return the results of the interpreter."""
    traced, structure = trace(fun, *args, **options)
    call: Any = (args, options)
    arrays = [x for x in optree.tree_leaves(call, none_is_leaf=True) if isinstance(x, np.ndarray)]
    captured = [np.asarray(x) for x in traced.captured]
    return optree.tree_unflatten(structure, evaluate(traced.function, [*arrays, *captured]))


def eagerly(fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the results of `fun(*args, **options)` on our arrays, outside of a trace."""
    call: Any = (args, options)
    leaves, structure = optree.tree_flatten(call, none_is_leaf=True)
    filled = [from_numpy(x) if isinstance(x, np.ndarray) else x for x in leaves]
    again: Any = optree.tree_unflatten(structure, filled)
    results, kind = optree.tree_flatten(fun(*again[0], **again[1]))
    return optree.tree_unflatten(kind, [np.asarray(x) for x in results])


def ops(fun: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """Return the names of the operations that `fun(*args, **options)` records."""
    return [op.spec.name for op in trace(fun, *args, **options)[0].function.body.ops]


def numpy_result(fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the result of NumPy's function, with warnings suppressed."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return fun(*args, **options)


def check(
    name: str, *args: Any, reference: Callable[..., Any] | None = None, rtol: float | None = None,
    dtype: str | None = None, **options: Any,
) -> None:  # fmt: skip
    """Check that `snp.name(*args)` returns NumPy's values and shapes, with a canonical dtype.

    The function runs both traced and interpreted, and eagerly.
    `reference` is called instead of NumPy's function of that name, `dtype` is expected instead of
    NumPy's.
    """
    expected_value = numpy_result(reference or getattr(np, name), *args, **options)
    for way in (run, eagerly):
        same(way(getattr(snp, name), *args, **options), expected_value, rtol, dtype)


def same(
    got: Any, expected_value: Any, rtol: float | None = None, dtype: str | None = None
) -> None:
    """Check that containers of arrays are equal up to rounding, with NumPy's element types."""
    if isinstance(expected_value, (tuple, list)):
        assert len(got) == len(expected_value)
        for mine, theirs in zip(got, expected_value, strict=True):
            same(mine, theirs, rtol, dtype)
        return
    expected_value = np.asarray(expected_value)
    expected = dtype or canonical_dtype(dtype_name(expected_value.dtype))
    assert dtype_name(got.dtype) == expected
    close(got, expected_value, rtol)


def close(got: Array, expected_value: Array, rtol: float | None = None) -> None:
    """Check that arrays are equal up to the rounding of the element type of `got`."""
    name = dtype_name(got.dtype)
    assert got.shape == expected_value.shape
    with np.errstate(all="ignore"):
        expected_value = expected_value.astype(NUMPY_DTYPES[name])
    if name not in TOLERANCE:
        np.testing.assert_array_equal(got, expected_value)
        return
    tolerance = TOLERANCE[name] if rtol is None else rtol
    kind = np.complex128 if name == "c64" else np.float64
    np.testing.assert_allclose(
        got.astype(kind), expected_value.astype(kind), rtol=tolerance, atol=tolerance
    )

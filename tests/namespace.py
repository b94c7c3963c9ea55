"""Comparing functions of the namespace with NumPy's: the same call, traced and interpreted."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import optree

from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.numpy import api as snp
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.promotion import canonical_dtype
from shardir.frontend.tracing.trace import TracedFunction, trace_program
from shardir.interpret.interpreter import evaluate
from shardir.ir.types import NUMPY_DTYPES, TensorType, dtype_name

Array = npt.NDArray[Any]

TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-5, "c64": 2e-5}


def words(text: str) -> list[str]:
    """A table of names."""
    return text.split()


def trace(fun: Callable[..., Any], *args: Any, **options: Any) -> tuple[TracedFunction, Any]:
    """`fun` traced on parameters in the places of the NumPy arrays; and its containers."""
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
    """The numbers that the interpreter gives for `fun(*args, **options)`, traced."""
    traced, structure = trace(fun, *args, **options)
    call: Any = (args, options)
    arrays = [x for x in optree.tree_leaves(call, none_is_leaf=True) if isinstance(x, np.ndarray)]
    captured = [np.asarray(x) for x in traced.captured]
    return optree.tree_unflatten(structure, evaluate(traced.function, [*arrays, *captured]))


def eagerly(fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The numbers that `fun(*args, **options)` gives outside of a trace, on our own arrays."""
    call: Any = (args, options)
    leaves, structure = optree.tree_flatten(call, none_is_leaf=True)
    filled = [from_numpy(x) if isinstance(x, np.ndarray) else x for x in leaves]
    again: Any = optree.tree_unflatten(structure, filled)
    results, kind = optree.tree_flatten(fun(*again[0], **again[1]))
    return optree.tree_unflatten(kind, [np.asarray(x) for x in results])


def ops(fun: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """The names of the operations that `fun(*args, **options)` leaves behind."""
    return [op.spec.name for op in trace(fun, *args, **options)[0].function.body.ops]


def numpys(fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What NumPy says, without its warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return fun(*args, **options)


def check(
    name: str, *args: Any, reference: Callable[..., Any] | None = None, rtol: float | None = None,
    dtype: str | None = None, **options: Any,
) -> None:  # fmt: skip
    """`snp.name(*args)` has the numbers and shapes of NumPy's, and its element type narrowed.

    Traced and interpreted as well as compiled for a device and run, outside of a trace.
    `reference` is called instead of NumPy's function of that name, `dtype` is expected instead of
    NumPy's.
    """
    wanted = numpys(reference or getattr(np, name), *args, **options)
    for way in (run, eagerly):
        same(way(getattr(snp, name), *args, **options), wanted, rtol, dtype)


def same(got: Any, wanted: Any, rtol: float | None = None, dtype: str | None = None) -> None:
    """Containers of arrays are equal but for rounding, and have the element types of NumPy's."""
    if isinstance(wanted, (tuple, list)):
        assert len(got) == len(wanted)
        for mine, theirs in zip(got, wanted, strict=True):
            same(mine, theirs, rtol, dtype)
        return
    wanted = np.asarray(wanted)
    expected = dtype or canonical_dtype(dtype_name(wanted.dtype))
    assert dtype_name(got.dtype) == expected
    close(got, wanted, rtol)


def close(got: Array, wanted: Array, rtol: float | None = None) -> None:
    """Numbers are equal but for the rounding of the element type of `got`."""
    name = dtype_name(got.dtype)
    assert got.shape == wanted.shape
    with np.errstate(all="ignore"):
        wanted = wanted.astype(NUMPY_DTYPES[name])
    if name not in TOLERANCE:
        np.testing.assert_array_equal(got, wanted)
        return
    tolerance = TOLERANCE[name] if rtol is None else rtol
    kind = np.complex128 if name == "c64" else np.float64
    np.testing.assert_allclose(
        got.astype(kind), wanted.astype(kind), rtol=tolerance, atol=tolerance
    )

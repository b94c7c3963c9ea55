"""Evaluation of a single operation on arrays, for tests of its semantics."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.interpret.interpreter import evaluate
from shardir.ir.builder import Builder
from shardir.ir.module import Function, Value
from shardir.ir.operation import OpSpec
from shardir.ir.types import TensorType, dtype_name

Array = npt.NDArray[Any]


def type_of(array: Array) -> TensorType:
    return TensorType(array.shape, dtype_name(array.dtype))


def apply_op(spec: OpSpec, *arrays: npt.ArrayLike, result: Any = None, **attrs: Any) -> Any:
    """Return the result of the reference interpreter on these arrays, a tuple for several."""
    operands = [np.asarray(array) for array in arrays]
    b = Builder()
    params = [b.param(type_of(array)) for array in operands]
    made = b.emit(spec, *params, result=result, **attrs)
    results = made if isinstance(made, tuple) else (made,)
    outs = evaluate(_function(b, params, results), operands)
    return outs[0] if len(outs) == 1 else tuple(outs)


def apply_reference(spec: OpSpec, *arrays: npt.ArrayLike, result: Any, **attrs: Any) -> Any:
    """Return the result of the reference semantics of an operation, a tuple for several."""
    assert spec.reference is not None
    return spec.reference(*arrays, result=result, **spec.rule_arguments(attrs))


def cotangents(
    spec: OpSpec, *arrays: npt.ArrayLike, g: npt.ArrayLike | None = None, result: Any = None,
    **attrs: Any,
) -> list[Array | None]:  # fmt: skip
    """Return the cotangents of the operands of an operation with one result.

    The cotangent of the result is `g`, or ones.
    """
    operands = [np.asarray(array) for array in arrays]
    b = Builder()
    params = [b.param(type_of(array)) for array in operands]
    made = b.emit(spec, *params, result=result, **attrs)
    given = b.param(made.type)
    assert spec.vjp is not None
    found = spec.vjp(b, given, *params, made, **spec.rule_arguments(attrs))
    ones = np.ones(made.type.shape) if g is None else np.asarray(g)
    kept = [value for value in found if value is not None]
    function = _function(b, [*params, given], kept)
    outs = iter(evaluate(function, [*operands, ones.astype(made.type.numpy)]))
    return [None if value is None else next(outs) for value in found]


def infer_types(spec: OpSpec, *types: TensorType, result: Any = None, **attrs: Any) -> Any:
    """Return the result type or types; propagate the error of the type rule."""
    b = Builder()
    made = b.emit(spec, *(b.param(type) for type in types), result=result, **attrs)
    return tuple(value.type for value in made) if isinstance(made, tuple) else made.type


def _function(b: Builder, params: Sequence[Value], results: Sequence[Value]) -> Function:
    return Function("f", b.block(params, results), (None,) * len(results))

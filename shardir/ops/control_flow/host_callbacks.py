"""Calls from a running program to Python functions of the host program.

Text contains only the name of such a function, so a program that was parsed from text cannot run
it. With `batch` leading dimensions, a function is called once per position along them.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from shardir.errors import InterpretError, VectorizeError, count_noun
from shardir.ir.arithmetic import FIXED_DTYPES
from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder
from shardir.ir.host_function import absent_function_message, host_function_of
from shardir.ir.operation import OPS, OpSpec, Partitioning, Result, Value, define_op
from shardir.ir.types import TensorType
from shardir.op_rules.batching import BatchedOp
from shardir.op_rules.factors import FactorRule, RuleBuilder
from shardir.op_rules.partitioning import all_factors

VMAP_METHODS = ("none", "sequential", "expand_dims", "broadcast_all", "legacy_vectorized")
"""The methods of calling a function under `vmap`; `none` refuses it.

They do not apply to devices: `merge-devices` increments `batch` whatever the method is.
"""


@dataclass(frozen=True, slots=True)
class CallbackAttributes(Attributes):
    """The attributes of a call: `method` is the one of `VMAP_METHODS`."""

    function: str
    batch: int = 0
    method: str = "sequential"


def _type(*xs: TensorType, result: Result, attributes: CallbackAttributes) -> object:
    method, batch = attributes.method, attributes.batch
    if method not in VMAP_METHODS:
        raise TypeError(f"method={method} is not one of {', '.join(VMAP_METHODS)}")
    for x in xs:
        if x.rank < batch:
            raise TypeError(f"is called along {count_noun(batch, 'dimension')}, but {x} has fewer")
    return () if result is None else result


def _call(*arrays: Any, result: Result, attributes: CallbackAttributes) -> Any:
    function, batch = attributes.function, attributes.batch
    called = host_function_of(function)
    if called is None:
        raise InterpretError(absent_function_message(function))
    types = (result,) if isinstance(result, TensorType) else tuple(result)
    if not batch:
        results = _check_results(function, called(*arrays), types)
    else:
        sizes = arrays[0].shape[:batch] if arrays else types[0].shape[:batch]
        results = tuple(np.empty(type.shape, type.numpy) for type in types)
        inner = tuple(type.with_shape(type.shape[batch:]) for type in types)
        for at in product(*map(range, sizes)):
            parts = _check_results(function, called(*(x[at] for x in arrays)), inner)
            for result_array, part in zip(results, parts, strict=True):
                result_array[at] = part
    return results[0] if isinstance(result, TensorType) else results


def _check_results(name: str, results: Any, types: tuple[TensorType, ...]) -> tuple[Any, ...]:
    result_list = () if not types else tuple(results)
    if len(result_list) != len(types):
        raise InterpretError(
            f"{name} returned {count_noun(len(result_list), 'array')}, and {len(types)} "
            f"{'is' if len(types) == 1 else 'are'} declared"
        )
    arrays = tuple(np.asarray(x) for x in result_list)
    for array, type in zip(arrays, types, strict=True):
        if array.shape != type.shape or array.dtype != type.numpy:
            raise InterpretError(
                f"{name} returned {array.dtype}{list(array.shape)}, and {type} is declared; "
                "convert the result, or declare its type"
            )
    return arrays


def _batch(
    b: Builder, many: BatchedOp, *xs: Value, attributes: CallbackAttributes
) -> Value | tuple[Value, ...]:
    method = attributes.method
    if method == "none":
        raise VectorizeError(
            f"{attributes.function} is called with one example at a time; state with vmap_method= "
            "how it is to be called: 'sequential', 'expand_dims' or 'broadcast_all'"
        )
    if method == "expand_dims":
        pairs = zip(xs, many.batched, strict=True)
        operands = [
            x if has else b.reshape(x, result=x.type.with_shape((1, *x.type.shape)))
            for x, has in pairs
        ]
    elif method == "legacy_vectorized":
        operands = list(xs)
    else:
        operands = list(many.batch_all(b, xs))
    if method == "sequential":
        attributes = replace(attributes, batch=attributes.batch + 1)
    made: Value | tuple[Value, ...] = b.emit(
        many.op.spec, *operands, result=many.emit_result, **attributes.to_attrs()
    )
    return made


def _define(name: str, *, effect: bool = False) -> OpSpec:
    return define_op(
        name,
        attributes=CallbackAttributes,
        type=_type,
        reference=_call,
        batch=_batch,
        arithmetic=FIXED_DTYPES,
        effect=effect,
    )


callback = _define("callback", effect=True)
"""Call `function(operands...)` exactly once and in program order, for its results or its side
effects.
"""

pure_callback = _define("pure-callback")
"""Call `function(operands...)`, which has no side effects, any number of times."""


def _no_result_type(x: TensorType, *, function: str, result: Result) -> tuple[TensorType, ...]:
    return ()


def _operand_factors(x: TensorType, *, function: str, result: Result) -> FactorRule:
    return RuleBuilder([x.shape], []).add_pointwise(x.shape).build()


def _inspect_batch(
    b: Builder, many: BatchedOp, x: Value, *, function: str
) -> Value | tuple[Value, ...]:
    made: Value | tuple[Value, ...] = b.emit(OPS["inspect-sharding"], x, function=function)
    return made


inspect_sharding = define_op(
    "inspect-sharding",
    type=_no_result_type,
    factors=_operand_factors,
    reference=lambda x, *, function, result: (),
    batch=_inspect_batch,
    partition=Partitioning(shardable=all_factors),
    effect=True,
    arithmetic=None,
)
"""Call `function` with the sharding of `x` after compilation."""

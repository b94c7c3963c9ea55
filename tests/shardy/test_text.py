"""JAX parses the StableHLO text of every operation and computes the same results."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxlib")

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

from shardir.interpret.interpreter import run
from shardir.ir.builder import Builder, inline
from shardir.ir.dtypes import KEY_WORDS, KEYS
from shardir.ir.key_implementations import split_keys
from shardir.ir.module import Function, Module, Value
from shardir.ir.operation import Dense
from shardir.ir.types import TensorType
from shardir.stablehlo.printer import show
from shardir.stablehlo.writing.decompositions import CUSTOM_CALL_OPERATIONS
from tests.op_sample import Sample
from tests.samples import SAMPLES, some_of_each
from tests.shardy.oracle import context
from tests.shardy.stablehlo_support import is_expressible

LOOSE = {"f16": 2e-2, "bf16": 5e-2}
"""Relative error where StableHLO's interpreter rounds every step."""


def can_be_run(sample: Sample) -> bool:
    """Return whether StableHLO's interpreter can run the operation.

    It cannot run decompositions, empty sums, and large start indices in u8.
    """
    calls = sample.spec.name in (
        "propagation_barrier",
        "top_k",
        "random_bits",
        "random_split",
        "random_fold_in",
        "random_hash",
        "fft",
        "cholesky",
        "triangular_solve",
        *CUSTOM_CALL_OPERATIONS,
    )
    empty = sample.spec.name == "dot" and 0 in sample.operands[0].shape
    return not (calls or empty or any(type == TensorType((), "u8") for type in sample.operands))


def close_over_constants(sample: Sample) -> Module:
    """Return the sample applied to constants, with results whose dtypes NumPy has."""
    module = sample.module()
    b = Builder()
    params = module.main.body.params
    arguments = [_constant(b, x, p.type) for x, p in zip(sample.arrays(), params, strict=True)]
    results = [
        part for value in inline(b, module.main.body, arguments) for part in _plain(b, value)
    ]
    return Module((), (Function("main", b.block((), results), (None,) * len(results)),))


def _constant(b: Builder, array: Any, type: TensorType) -> Value:
    if type.dtype not in KEYS:
        made: Value = b.constant(value=Dense(array), result=type)
        return made
    words = split_keys(array, type.dtype)
    row = type.with_shape(words.shape).with_dtype("u32")
    key: Value = b.bitcast(b.constant(value=Dense(words), result=row), result=type)
    return key


def _plain(b: Builder, value: Value) -> list[Value]:
    type = value.type
    if type.dtype in ("c64", "c128"):
        return [b.real(value), b.imag(value)]
    if type.dtype in KEYS:
        row = type.with_shape((*type.shape, KEY_WORDS[type.dtype]))
        return [b.bitcast(value, result=row.with_dtype("u32"))]
    wide = {"bf16": "f32", "f16": "f32", "bool": "i32"}.get(type.dtype)
    return [b.convert(value, result=type.with_dtype(wide)) if wide else value]


SAID = [sample for sample in SAMPLES if is_expressible(sample)]
RUN = [sample for sample in SAID if can_be_run(sample)]


@some_of_each
@pytest.mark.parametrize("sample", SAID, ids=lambda sample: sample.id)
def test_jax_parses_the_text(sample: Sample) -> None:
    with context(), ir.Location.unknown():
        parsed = ir.Module.parse(show(sample.module()))
        assert parsed.operation.verify()


@some_of_each
@pytest.mark.parametrize("sample", RUN, ids=lambda sample: sample.id)
def test_the_text_computes_the_results_of_the_operation(sample: Sample) -> None:
    module = close_over_constants(sample)
    stablehlo.register_stablehlo_passes()
    with context(), ir.Location.unknown():
        parsed = ir.Module.parse(show(module))
        PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(
            parsed.operation
        )
        found = stablehlo.eval_module(parsed, [])
    loose = max((LOOSE.get(type.dtype, 2e-4) for type in sample.operands), default=2e-4)
    for got, want in zip(found, run(module, []), strict=True):
        array = np.array(got).reshape(-1).astype(want.dtype)
        np.testing.assert_allclose(
            np.broadcast_to(array, want.size) if array.size == 1 else array,
            want.reshape(-1),
            rtol=loose,
            atol=1e-5 if loose < 1e-3 else loose,
        )

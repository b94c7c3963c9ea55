"""Random bits equal the reference."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.kernels.threefry import RULES
from shardir.ir.operation import OPS, Symbol
from shardir.ir.types import TensorType
from tests.backends.cpu.kernels.reference_check import (
    check_against_reference,
    random_operations,
    reference_results,
)
from tests.backends.cpu.phase_runner import make_op, run_rule

UNSHARDED_OPERATIONS = ["random_bits", "random_split", "random_fold_in", "random_hash"]


def random_keys(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**64, shape, np.uint64)


@pytest.mark.parametrize("name", UNSHARDED_OPERATIONS)
@settings(max_examples=40)
@given(st.data())
def test_random_operations_equal_the_reference(name: str, data: st.DataObject) -> None:
    assert check_against_reference(data, RULES, data.draw(random_operations([name])))


@pytest.mark.parametrize("scheme", ["partitionable", "original"])
@pytest.mark.parametrize("dtype", ["u8", "u16", "u32", "u64"])
@pytest.mark.parametrize("shape", [(7,), (3, 1001), (65, 64)])
def test_random_bits_of_all_types_equal_the_reference(
    scheme: str, dtype: str, shape: tuple[int, ...]
) -> None:
    for around in ((), (2,)):
        keys, result = random_keys(around), TensorType((*around, *shape), dtype)
        type = TensorType(around, "key")
        op = make_op(OPS["random_bits"], type, result=result, scheme=Symbol(scheme))
        (out,) = run_rule(RULES["random_bits"], op, [keys])
        np.testing.assert_array_equal(out, reference_results(op, [keys])[0])


@pytest.mark.parametrize("scheme", ["partitionable", "original"])
@pytest.mark.parametrize("name", ["random_bits_at", "random_split_at"])
def test_shards_of_random_bits_equal_the_reference(name: str, scheme: str) -> None:
    start = TensorType((), "i32")
    op = make_op(
        OPS[name],
        TensorType((2,), "key"),
        start,
        start,
        result=TensorType((2, 5, 70), "key" if "split" in name else "u32"),
        shape=(20, 100),
        scheme=Symbol(scheme),
    )
    arrays = [random_keys((2,)), np.array(7, np.int32), np.array(30, np.int32)]
    (out,) = run_rule(RULES[name], op, arrays)
    np.testing.assert_array_equal(out, reference_results(op, arrays)[0])

"""Declarations of operations about partitioned execution."""

import numpy as np
import pytest

from shardir.ir.operation import OPS
from shardir.ir.types import COMPLEX, TensorType
from shardir.op_rules.factors import FactorKind, RuleBuilder
from shardir.op_rules.partitioning import default_shardable_factors, identity_element
from shardir.ops.communication.collectives import REDUCTIONS
from tests.dtype_groups import FLOATS, INTEGERS


def test_a_factor_may_be_sharded_if_a_result_has_it_or_partial_results_combine() -> None:
    builder = RuleBuilder([(2, 3, 4, 5)], [(2, 6)])
    builder.add([0], [0], 2)
    builder.add([1], [None], 3, FactorKind.REDUCE)
    builder.add([2], [None], 4)
    builder.add([3], [None], 5, FactorKind.REPLICATE)
    builder.add([None], [1], 6)
    assert default_shardable_factors(builder.build()) == (0, 1, 4)
    assert default_shardable_factors(builder.build(None)) == (0, 4)


@pytest.mark.sample(3)
@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS, *COMPLEX])
def test_the_identity_of_a_reduction_is_neutral(reduction: str, dtype: str) -> None:
    if dtype in COMPLEX and reduction in ("max", "min"):
        return
    type = TensorType((), dtype)
    numbers: list[float] = [0, 1] if dtype == "bool" else [0, 1, 2, 3]
    if dtype in FLOATS:
        numbers += [-0.0, np.inf, -np.inf]
    x = np.array(numbers).astype(type.numpy)
    nothing = np.full(x.shape, identity_element(reduction, dtype), type.numpy)
    combined = REDUCTIONS[reduction][0](x, nothing)
    assert combined.tobytes() == x.tobytes()


def test_every_operation_can_be_partitioned_by_its_rule_or_a_declaration() -> None:
    """Operations without either are replicated on every device."""
    whole = sorted(
        spec.name
        for spec in OPS.values()
        if not (spec.factors or spec.partition or spec.spmd or spec.blocks)
    )
    assert whole == ["callback", "pure-callback", "reshard"]

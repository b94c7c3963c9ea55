"""Hashes of frozen records are computed once, and are no part of the records."""

import copy
import pickle
from dataclasses import replace

import pytest

from shardir.ir.sharding import Axis, DimSharding, Sharding
from shardir.ir.types import TensorType
from shardir.op_rules.factors import Factor, FactorRule

AXIS = Axis("data", 1, 4)
RECORDS = (
    AXIS,
    DimSharding((AXIS,)),
    Sharding("mesh", (DimSharding((AXIS,)),)),
    TensorType((8, 4), "f32"),
    FactorRule((((0,),),), (((0,),),), (Factor(8),)),
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_copies_are_equal_and_have_no_stored_hash(record: object) -> None:
    expected = hash(record)
    assert hash(record) == expected
    for other in (copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert other == record
        if other is not record:
            assert not hasattr(other, "_hash")
        assert hash(other) == expected
        assert "_hash" not in repr(other)


def test_a_changed_record_has_its_own_hash() -> None:
    hash(AXIS)
    assert hash(replace(AXIS, size=2)) == hash(Axis("data", 1, 2))

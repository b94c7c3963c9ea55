"""`pjit` is `jit` under another name."""

import numpy as np
import pytest

from shardir.experimental.maps import Mesh
from shardir.experimental.mesh_utils import create_device_mesh
from shardir.experimental.pjit import PartitionSpec, pjit
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import api as snp


def test_pjit_takes_both_words_for_shardings() -> None:
    x = snp.arange(8.0).reshape(4, 2)
    with Mesh(create_device_mesh((4, 2)), ("x", "y")):
        older = pjit(
            lambda x: x + 1,
            in_axis_resources=PartitionSpec("x", "y"),
            out_axis_resources=PartitionSpec("y"),
        )(x)
        newer = pjit(
            lambda x: x + 1,
            in_shardings=PartitionSpec("x", "y"),
            out_shardings=PartitionSpec("y"),
        )(x)
    assert older.sharding == newer.sharding
    assert older.sharding.spec == PartitionSpec("y")
    np.testing.assert_array_equal(np.asarray(older), np.asarray(newer))


def test_pjit_takes_one_of_the_words_at_a_time() -> None:
    with pytest.raises(ArgumentError) as caught:
        pjit(lambda x: x, PartitionSpec("x"), in_axis_resources=PartitionSpec("x"))
    assert str(caught.value).startswith(
        "in_shardings and in_axis_resources are the same option; pass one\n"
    )

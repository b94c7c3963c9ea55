"""`pjit` is an alias of `jit`."""

import numpy as np
import pytest

from shardir.experimental.maps import Mesh
from shardir.experimental.mesh_utils import create_device_mesh
from shardir.experimental.pjit import PartitionSpec, pjit
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import api as snp


def test_pjit_accepts_both_names_of_the_sharding_parameters() -> None:
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


def test_both_names_in_one_call_are_an_error() -> None:
    with pytest.raises(ArgumentError) as caught:
        pjit(lambda x: x, PartitionSpec("x"), in_axis_resources=PartitionSpec("x"))
    assert str(caught.value).startswith(
        "in_shardings and in_axis_resources are the same option; pass one\n"
    )

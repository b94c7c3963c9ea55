"""Meshes of groups of devices: the arrangement, and groups that do not fit the shapes."""

from unittest.mock import patch

import numpy as np
import pytest

import shardir as sd
from shardir.experimental.mesh_utils import create_hybrid_device_mesh
from shardir.frontend.distributed.processes import ProcessGroup
from shardir.frontend.errors import MeshError
from tests.error_assertions import assert_raises_exactly


def test_positions_along_an_axis_are_in_one_group() -> None:
    groups = ProcessGroup(0, (2, 2, 2, 2))
    with (
        sd.cpu_devices(8),
        patch("shardir.frontend.distributed.processes._current_group", [groups]),
    ):
        devices = sd.devices()
        made = create_hybrid_device_mesh((1, 2), (2, 2), process_is_granule=True)
        ids = np.vectorize(lambda device: device.id)(made)
        np.testing.assert_array_equal(ids, [[0, 1, 2, 3], [4, 5, 6, 7]])
        made = create_hybrid_device_mesh((2, 1), (1, 4), process_is_granule=True)
        ids = np.vectorize(lambda device: device.id)(made)
        np.testing.assert_array_equal(ids, [[0, 2, 4, 6], [1, 3, 5, 7]])
        made = create_hybrid_device_mesh(
            2, 4, devices[::-1], process_is_granule=True, should_sort_granules_by_key=False
        )
        assert [device.id for device in made] == [7, 6, 5, 4, 3, 2, 1, 0]
        assert create_hybrid_device_mesh((2, 4), (1, 1)).tolist() == [devices[:4], devices[4:]]


@pytest.mark.parametrize(
    ("shape", "outer", "by_process", "message"),
    [
        ((2, 4), (1,), False,
         "a hybrid device mesh has the shapes (2, 4) and (1,); both have one size for each axis, "
         "which is 1 where the axis is in one network"),
        ((2, 2), (2, 1), False,
         "dcn_mesh_shape (2, 1) has 2 positions, and the devices are in 1 slice; with "
         "process_is_granule=True, groups are processes"),
        ((2, 2), (2, 1), True,
         "dcn_mesh_shape (2, 1) has 2 positions, and the devices are in 1 process"),
        ((2, 2), (1, 1), False, "mesh_shape (2, 2) has 4 positions, and slice 0 has 8 devices"),
    ],
)  # fmt: skip
def test_groups_that_do_not_fit(
    shape: tuple[int, ...], outer: tuple[int, ...], by_process: bool, message: str
) -> None:
    with sd.cpu_devices(8):
        assert_raises_exactly(
            lambda: create_hybrid_device_mesh(shape, outer, process_is_granule=by_process),
            MeshError,
            message,
        )

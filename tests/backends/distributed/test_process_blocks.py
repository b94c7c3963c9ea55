"""Blocks of a mesh that consist of the devices of one process."""

import pytest

from shardir.backends.distributed.process_blocks import ProcessBlocks, process_blocks_of
from shardir.ir.mesh import Mesh

MESH = Mesh("m", (("x", 4), ("y", 2)))


@pytest.mark.parametrize(
    ("owners", "here", "want"),
    [
        ((0, 0, 0, 0, 1, 1, 1, 1), 1, ProcessBlocks("x:2", "x:1", (0, 1))),
        ((0, 1, 0, 1, 0, 1, 0, 1), 1, ProcessBlocks("y:2", "y:1", (0, 1))),
        ((3, 3, 2, 2, 1, 1, 0, 0), 2, ProcessBlocks("x:4", "x:1", (3, 2, 1, 0))),
        ((0, 1, 0, 1, 2, 3, 2, 3), 2, ProcessBlocks("x:2/y:2", "x:1/y:0", (0, 1, 2, 3))),
        ((5, 5, 5, 5, 5, 5, 5, 5), 5, ProcessBlocks("", "", (5,))),
    ],
)
def test_blocks_are_found_for_regular_owners(
    owners: tuple[int, ...], here: int, want: ProcessBlocks
) -> None:
    assert process_blocks_of(MESH, owners, here) == want


@pytest.mark.parametrize(
    "owners",
    [
        (0, 0, 0, 1, 1, 1, 2, 2),  # blocks of different sizes
        (0, 0, 1, 1, 1, 1, 0, 0),  # not adjacent
        (0, 1, 1, 0, 0, 1, 1, 0),  # different orders in the rows
        (0, 0, 1, 1, 1, 1, 2, 2),
        (1, 1, 1, 1, 1, 1, 1, 1),  # no devices in this process
    ],
)
def test_irregular_owners_have_no_blocks(owners: tuple[int, ...]) -> None:
    assert process_blocks_of(MESH, owners, 0) is None

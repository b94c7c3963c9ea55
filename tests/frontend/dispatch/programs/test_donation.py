"""Donated arguments after an error of their program."""

from typing import Any

import numpy as np
import pytest

from shardir.errors import ShardirError
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.dispatch.programs.donation import run_with_donation
from shardir.frontend.errors import DeletedArrayError
from shardir.frontend.shardings.devices import devices


@pytest.mark.parametrize(
    ("kind", "has_started", "is_deleted"),
    [
        (ShardirError, False, False),
        (ShardirError, True, True),
        (KeyboardInterrupt, False, True),
    ],
)
def test_arguments_remain_only_if_the_program_has_not_started(
    kind: Any, has_started: bool, is_deleted: bool
) -> None:
    def run(leaves: Any) -> Any:
        error = kind("no")
        error.has_started = has_started
        raise error

    x, y = (from_numpy(np.ones(3, np.float32)) for _ in range(2))
    with pytest.raises(kind):
        run_with_donation(run, [x, y], [0], "f", tuple(devices()[:1]))
    assert [x.is_deleted(), y.is_deleted()] == [is_deleted, False]
    if is_deleted:
        with pytest.raises(DeletedArrayError, match="has been donated to f"):
            x.tolist()

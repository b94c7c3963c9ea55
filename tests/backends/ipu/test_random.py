"""Random programs over all operations, partitioned in any way, compute the reference's numbers."""

import pytest

from tests.backends.ipu.drawing import random_programs
from tests.backends.ipu.running import check


def test_random_programs(pytestconfig: pytest.Config) -> None:
    for number in range(20 if pytestconfig.getoption("--long") else 1):
        check(dict(random_programs(number, 120)))

"""Random programs over all operations, with random partitionings, give the reference results."""

import pytest

from tests.backends.ipu.host_model_execution import check
from tests.backends.ipu.random_programs import random_programs


def test_random_programs(pytestconfig: pytest.Config) -> None:
    for number in range(20 if pytestconfig.getoption("--long") else 1):
        check(dict(random_programs(number, 120)))

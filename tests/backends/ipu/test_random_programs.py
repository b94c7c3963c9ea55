"""Random programs over all operations, with random partitionings, give the reference results."""

import pytest

from tests.backends.ipu.host_model_execution import check
from tests.backends.ipu.random_programs import random_programs


def test_random_programs(pytestconfig: pytest.Config) -> None:
    runs, count = (20, 120) if pytestconfig.getoption("--long") else (1, 60)
    for number in range(runs):
        check(dict(random_programs(number, count)))

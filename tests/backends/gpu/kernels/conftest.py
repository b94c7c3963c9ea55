"""The process that interprets kernels; all tests of this folder share it."""

from collections.abc import Iterator

import pytest

from tests.backends.gpu.kernels.kernel_execution import Interpreter


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    made = Interpreter()
    yield made
    made.close()

"""What is tested here is how programs of JAX are read; how fast they run is tested elsewhere.

So the executor in NumPy runs them, which needs no compilation; with `--long` it is the one that
users get.
"""

import pytest

from shardir.frontend.dispatch import compilation


@pytest.fixture(autouse=True)
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.config.getoption("--long"):
        monkeypatch.setattr(compilation, "is_available", lambda: False)

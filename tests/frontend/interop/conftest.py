"""Configuration of the tests that import JAX programs.

The NumPy executor runs the programs, because it needs no compilation; other tests measure speed.
With `--long`, the default executor runs them.
"""

import pytest

from shardir.frontend.dispatch.programs import compilation


@pytest.fixture(autouse=True)
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.config.getoption("--long"):
        monkeypatch.setattr(compilation, "is_available", lambda: False)

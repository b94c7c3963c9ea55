"""What all tests share: how many programs hypothesis tries, and `.ir` stories as tests."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("quick", max_examples=200, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=2000, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-stories",
        action="store_true",
        help="rewrite .ir stories from the current output",
    )
    parser.addoption(
        "--long",
        action="store_true",
        help="try two thousand random programs where otherwise two hundred are tried",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "quick")


@pytest.fixture(scope="session", autouse=True)
def answered_calls() -> None:
    """What answers calls is there from the start, or it would depend on how many came before."""
    from shardir.backends.cpu.native import available

    if available():
        from shardir.backends.cpu.native.runtime.calls import calls

        calls()


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix != ".ir":
        return None
    from tests.story import StoryFile

    return StoryFile.from_parent(parent, path=file_path)

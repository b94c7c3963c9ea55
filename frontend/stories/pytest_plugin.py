"""A pytest plug-in that collects the steps of story files (`.ir`) as tests.

The entry point has the name of this module, so that `pytest_plugins` of a conftest finds the
plug-in registered instead of registering it twice. Modules of shardir are imported when a story
is collected: every run of pytest where shardir is installed imports this module.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardir._imports.lazy_import import lazy_import
from shardir.errors import ShardirError
from shardir.frontend.stories.story_syntax import UPDATE_VARIABLE, has_heading

if TYPE_CHECKING:
    from shardir.frontend.stories import story_files
    from shardir.frontend.stories.story_files import StoryStep
else:
    story_files = lazy_import("shardir.frontend.stories.story_files")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    _import_without_rewriting(pluginmanager)
    parser.getgroup("shardir").addoption(
        "--update-stories",
        action="store_true",
        help="rewrite the story files (.ir) that are collected, and the files of assert_pass, with "
        "the results of their pipelines",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-stories"):
        os.environ[UPDATE_VARIABLE] = "1"


def _import_without_rewriting(pluginmanager: pytest.PytestPluginManager) -> None:
    """Let Python import the modules of shardir instead of pytest's assertion rewriting.

    pytest rewrites the `assert` statements of all packages of a distribution that has a plug-in,
    which delays the import of shardir in each run of pytest by about 0.3 s. pytest has no public
    function that prevents this; if it renames the attributes, imports are slower and still work.
    """
    hook = getattr(pluginmanager, "rewrite_hook", None)
    marked = getattr(hook, "_must_rewrite", None)
    if hook is not None and isinstance(marked, set):
        marked.discard("shardir")
        getattr(hook, "_marked_for_rewrite_cache", {}).clear()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".ir" or not has_heading(file_path):
        return None
    return StoryFile.from_parent(parent, path=file_path)


class StoryFile(pytest.File):
    """A story file; each of its steps is a test."""

    def collect(self) -> Iterator[pytest.Item]:
        path = _short_path(self.path)
        if self.config.getoption("--update-stories"):
            story_files.update_story(path)
        for step in story_files.read_story(path).steps:
            yield StepItem.from_parent(self, name=step.pipeline, step=step)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, ShardirError):
            return _show_error(excinfo.value)
        return super().repr_failure(excinfo)


class StepItem(pytest.Item):
    """A step of a story as a test."""

    def __init__(self, *, step: "StoryStep", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step

    def runtest(self) -> None:
        self.step.check()

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, ShardirError):
            return _show_error(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.step.line - 1, f"{self.path.name} :: {self.name}"


def _short_path(path: Path) -> Path:
    """Return the path relative to the current folder, if the file is inside of it."""
    current = Path.cwd()
    return path.relative_to(current) if path.is_relative_to(current) else path


def _show_error(error: ShardirError) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])

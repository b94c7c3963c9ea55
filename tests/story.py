"""Stories: `.ir` files that show a program after each step of a pipeline.

A story is IR text split by lines such as `// ===== propagate`. Each section must be exactly
what that pipeline makes of the section above it, and must compute what the first section
computes. `pytest --update-stories` rewrites the sections below the first.
"""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardir.errors import ParseError
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.passes import Pipeline
from shardir.text.parser import parse

HEADING = re.compile(r"^// ===== (.+)\n\n", re.MULTILINE)


class StoryFile(pytest.File):
    """One `.ir` file; each of its steps is a test."""

    def collect(self) -> Iterator[pytest.Item]:
        first, *rest = HEADING.split(self.path.read_text())
        steps = list(zip(rest[::2], rest[1::2], strict=True))
        if not steps:
            raise pytest.Collector.CollectError(
                f"{self.path.name} has no step; head the first with '// ===== <pipeline>'"
            )
        if self.config.getoption("--update-stories"):
            steps = self.rewrite(first, [pipeline for pipeline, _ in steps])
        before = first
        for pipeline, after in steps:
            yield Step.from_parent(self, name=pipeline, texts=(first, before, after))
            before = after

    def rewrite(self, first: str, pipelines: list[str]) -> list[tuple[str, str]]:
        module = parse(first, self.path.name)
        steps = []
        for pipeline in pipelines:
            module = Pipeline.parse(pipeline)(module)
            steps.append((pipeline, str(module)))
        sections = [f"// ===== {pipeline}\n\n{text}" for pipeline, text in steps]
        self.path.write_text(first + "\n".join(sections))
        return steps


class Step(pytest.Item):
    """What one pipeline makes of the section above it: the same text, the same numbers."""

    def __init__(self, *, texts: tuple[str, str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.texts = texts

    def runtest(self) -> None:
        first, before, after = (parse(text, self.path.name) for text in self.texts)
        actual = Pipeline.parse(self.name)(before)
        if str(actual) != str(after):
            want, got = str(after).splitlines(), str(actual).splitlines()
            raise Differs(
                "\n".join(difflib.unified_diff(want, got, "story", "actual", lineterm=""))
            )
        arguments = random_arguments(first)
        for wanted, given in zip(run(first, arguments), run(after, arguments), strict=True):
            np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-5)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, Differs):
            return f"{excinfo.value}\n\nIf that is right: pytest --update-stories"
        if isinstance(excinfo.value, ParseError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name} :: {self.name}"


class Differs(AssertionError):
    """The text of a story is not what its pipeline prints."""

"""Completion of words by a shell: passes, pipelines, targets and machines.

Each function returns the possible continuations of a word, and imports the table of the names only
then, so that other completions start without the compiler.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import

if TYPE_CHECKING:
    from shardir.backends import emission
    from shardir.machine import description_files
    from shardir.passes import pipeline
else:
    pipeline = lazy_import("shardir.passes.pipeline")
    emission = lazy_import("shardir.backends.emission")
    description_files = lazy_import("shardir.machine.description_files")


def complete_pass(incomplete: str) -> list[str]:
    """Return the names of passes that begin with a word."""
    return [name for name in pipeline.PASSES.names() if name.startswith(incomplete)]


def complete_pipeline(incomplete: str) -> list[str]:
    """Return the pipelines that continue the last pass of a pipeline."""
    before, comma, last = incomplete.rpartition(",")
    names = [pipeline.DEFAULT_STEP, pipeline.EMPTY_STEP, *pipeline.PASSES.names()]
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def complete_target(incomplete: str) -> list[str]:
    """Return the names of targets that begin with a word."""
    return [name for name in emission.TARGETS.names() if name.startswith(incomplete)]


def complete_machine(incomplete: str) -> list[str]:
    """Return the names of machine descriptions that begin with a word."""
    names = [*description_files.list_descriptions(), description_files.LOCAL]
    return [name for name in names if name.startswith(incomplete)]

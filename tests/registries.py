"""Registries without the entries that a test adds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shardir.backends.base import BACKENDS
from shardir.backends.emission import TARGETS
from shardir.frontend.random_programs.pointwise import POINTWISE
from shardir.frontend.random_programs.scope import SAMPLERS
from shardir.ir.operation import OPS
from shardir.op_rules.custom_rules import PACKAGE_RULES
from shardir.passes import PASSES


@contextmanager
def restored_registries() -> Iterator[None]:
    """Remove what the block registers."""
    tables: tuple[Any, ...] = (PASSES, TARGETS, BACKENDS, OPS, PACKAGE_RULES)
    before = [(table, dict(table), dict(table._origins), table.has_extensions) for table in tables]
    samplers: list[tuple[Any, Any]] = [(t, dict(t)) for t in (SAMPLERS, POINTWISE)]
    try:
        yield
    finally:
        for table, entries, origins, extensions in before:
            table.clear()
            table.update(entries)
            table._origins = origins
            table.has_extensions = extensions
        for names, known in samplers:
            names.clear()
            names.update(known)

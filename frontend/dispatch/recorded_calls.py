"""Records of the calls of public functions outside of traces.

A composed function (`composed`) reads them to find the one call that determines its result.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from shardir.backends.base import Launch
from shardir.frontend.pytree import tree


class RecordedCall(NamedTuple):
    """A record of one call outside of traces: the arguments, the leaves of the `launch`, and its
    result."""

    arguments: Sequence[Any]
    launch: Launch | None
    leaves: Sequence[Any]
    structure: tree.PyTreeDef | None
    result: Any


recorded_calls: ContextVar[list[RecordedCall] | None] = ContextVar("shardir_watched", default=None)
"""The list that records calls while it is set; the native call cache is bypassed then."""

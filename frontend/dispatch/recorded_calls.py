"""Records of the calls of public functions outside of traces.

A composed function (`composed`) reads them to find the one call that determines its result.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import NamedTuple

from shardir.backends.base import Launch
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree


class RecordedCall(NamedTuple):
    """A record of one call outside of traces: the arguments, the leaves of the `launch`, and its
    result."""

    arguments: Sequence[PyTree]
    launch: Launch | None
    leaves: Sequence[PyTree]
    structure: tree.PyTreeDef | None
    result: PyTree


recorded_calls: ContextVar[list[RecordedCall] | None] = ContextVar("shardir_watched", default=None)
"""The list that records calls while it is set; the native call cache is bypassed then."""

"""Assertions about the communication of programs, and about the effect of shardings on results."""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_names

TABLE = {
    "shardir.frontend.testing": (
        "CommunicationError",
        "DifferentResultsError",
        "assert_collectives",
        "assert_equivalent",
        "collectives",
    ),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.testing import (
        CommunicationError as CommunicationError,
        DifferentResultsError as DifferentResultsError,
        assert_collectives as assert_collectives,
        assert_equivalent as assert_equivalent,
        collectives as collectives,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)

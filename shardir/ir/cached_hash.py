"""Frozen records that compute their hash once.

Rules, types and shardings are keys of many caches, and their hash visits all nested records.
"""

from typing import TypeVar

T = TypeVar("T", bound="CachedHash")


class CachedHash:
    """Base class of the records that `cache_hash` decorates; its slot holds the hash.

    The slot is not a field of the dataclass. Comparisons, copies and pickles therefore ignore it,
    as they must: the hash of a string differs between processes.
    """

    __slots__ = ("_hash",)

    _hash: int


def cache_hash(record: type[T]) -> type[T]:
    """Decorate a frozen dataclass so that each object computes its hash at most once."""
    compute = record.__hash__
    store = CachedHash.__dict__["_hash"].__set__  # Frozen records refuse ordinary assignments.

    def __hash__(self: T) -> int:
        try:
            return self._hash
        except AttributeError:
            result = compute(self)
            store(self, result)
            return result

    record.__hash__ = __hash__  # type: ignore[assignment]
    return record

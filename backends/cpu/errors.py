"""Errors of native programs and of their settings."""

from shardir.errors import ShardirError


class OutOfMemoryError(ShardirError, MemoryError):
    """Memory that the system, or the limit of the pool, refuses. No state was changed."""


class SettingError(ShardirError, ValueError):
    """An environment variable with an invalid value."""

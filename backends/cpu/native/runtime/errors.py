"""What can go wrong while a native program runs."""

from shardir.errors import ShardirError


class OutOfMemoryError(ShardirError, MemoryError):
    """Memory that the system, or the limit of the pool, does not give. Nothing was changed."""


class SettingError(ShardirError, ValueError):
    """A setting in the environment that cannot be read."""

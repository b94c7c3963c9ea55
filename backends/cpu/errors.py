"""Errors of native programs and of their settings."""

from shardir.errors import OutOfMemoryError as OutOfMemoryError, ShardirError


class SettingError(ShardirError, ValueError):
    """An environment variable with an invalid value, or a machine whose programs this host cannot
    run."""


class MissingKernelCodeError(LookupError):
    """The code of a kernel that is known by name only is no longer on disk."""

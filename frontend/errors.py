"""What can go wrong with settings, devices and shardings, before any program runs."""

from shardir.errors import ShardirError


class UnknownSetting(ShardirError, AttributeError):
    """A setting that does not exist."""


class SettingError(ShardirError, ValueError):
    """A value that a setting does not take."""


class DeviceError(ShardirError, RuntimeError):
    """A device or a platform that this machine does not have."""


class MeshError(ShardirError, ValueError):
    """Devices that cannot be arranged as asked."""


class ShardingError(ShardirError, ValueError):
    """A sharding that means nothing, or that does not fit the value it is given to."""


class IndivisibleError(ShardingError):
    """A dimension at a boundary whose size its sharding does not divide."""


class IncompatibleDevicesError(ShardirError, ValueError):
    """Arrays of one computation placed on different devices, or in a different order."""

"""What can go wrong with settings, devices and shardings, before any program runs.

Python, NumPy and JAX call the same mistake now a TypeError, now a ValueError; errors for mistakes
of that kind are both, so that code written to catch either catches them.
"""

from shardir.errors import ShardirError


class UnknownSetting(ShardirError, AttributeError):
    """A setting that does not exist."""


class SettingError(ShardirError, ValueError):
    """A value that a setting does not take."""


class DeviceError(ShardirError, RuntimeError):
    """A device or a platform that this machine does not have."""


class DistributedError(ShardirError, RuntimeError):
    """Processes that cannot join, or that are asked for what only some of them have."""


class MissingFileError(ShardirError, FileNotFoundError):
    """A file to be read that is not there."""


class CheckpointError(ShardirError, RuntimeError):
    """A checkpoint that cannot be written, or does not have what is asked for."""


class MeshError(ShardirError, ValueError):
    """Devices that cannot be arranged as asked."""


class ShardingError(ShardirError, ValueError):
    """A sharding that means nothing, or that does not fit the value it is given to."""


class CallbackShardingError(ShardingError, NotImplementedError):
    """A sharding that a call of a Python function cannot have."""


class IndivisibleError(ShardingError):
    """A dimension at a boundary whose size its sharding does not divide."""


class IncompatibleDevicesError(ShardirError, ValueError):
    """Arrays of one computation placed on different devices, or in a different order."""


class TracedValueError(ShardirError, TypeError):
    """A traced value used where its numbers would have to be known."""


class TracedTruthError(TracedValueError, ValueError):
    """The truth value asked of a traced array that has more elements than one, or none."""


class TracedPlaceError(TracedValueError, AttributeError):
    """A traced value asked where its parts live, which is not decided yet."""


class TracedMaskError(TracedValueError, IndexError):
    """A traced mask as an index: how many elements it takes is not known."""


class OutsideError(ShardirError, RuntimeError):
    """Something that is part of a program, where none is traced."""


class LeakedTracerError(ShardirError, TypeError, RuntimeError):
    """A traced value used after, or outside of, the trace it belongs to."""


class ArgumentError(ShardirError, TypeError, ValueError):
    """A function called, or wrapped, with arguments that it cannot take."""


class LostUpdateError(ArgumentError):
    """A function that changes an argument in place where the caller could not see the change."""


class NoMeshError(ArgumentError, RuntimeError):
    """A PartitionSpec where nothing says which mesh it speaks of."""


class RecursiveError(ShardirError, RecursionError):
    """A function whose tracing never ends, for it calls itself."""


class DeletedArrayError(ShardirError, RuntimeError):
    """An array used after its buffers were given away or deleted."""


class NotAddressableError(ShardirError, RuntimeError):
    """Numbers that devices of other processes hold."""


class NotAnArrayError(ShardirError, TypeError, ValueError):
    """A Python object that does not stand for an array."""

    about: tuple[object, str] | tuple[()] = ()
    """The object and what is said of it; the function that was called says whose argument it is."""


class NumberError(ShardirError, OverflowError):
    """A Python number that does not fit into the element type it is needed in."""


class ControlFlowError(ShardirError, TypeError, ValueError):
    """A loop or a branch whose function does not take or give what it has to."""


class RandomError(ShardirError, ValueError, TypeError):
    """Random numbers asked for from what is no key, or of a type or shape there is none of."""


class KeyKindError(RandomError, TypeError):
    """A random key asked for from what is no seed and no kind of key."""


class StructureError(ArgumentError, ValueError):
    """Containers of other kinds, or with other places, than are wanted."""


class AxisError(ShardirError, ValueError, IndexError):
    """An axis that the array does not have, or one that is named twice."""


class ShapeError(ShardirError, ValueError, TypeError):
    """A shape that no array has, or that does not fit what it is wanted for."""


class IndexingError(ShardirError, IndexError, TypeError, ValueError):
    """An index that is none, that the array does not have, or that does not fit it."""


class AxisNameError(ShardirError, NameError):
    """A name of an axis that nothing around the line has bound."""


class PermutationError(ShardirError, ValueError):
    """Positions that move to places that there are not, or several to one."""


class BatchError(ShardirError, ValueError):
    """A function mapped over arguments that do not go together."""


class ImmutableError(ShardirError, TypeError):
    """An attempt to change an array in place."""


class UnknownMethod(ShardirError, AttributeError):
    """A method, or an attribute, that does not exist."""

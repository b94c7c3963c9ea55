"""Errors about settings, devices, shardings and arguments, raised before a program runs.

Python, NumPy and JAX raise TypeError for some invalid arguments and ValueError for others. An error
class for such arguments inherits from both, so that code that catches either one works.
"""

from collections.abc import Callable
from typing import Any

from shardir.errors import (
    ConcretizationTypeError,
    DistributedError as DistributedError,
    JaxRuntimeError,
    NonConcreteBooleanIndexError,
    ShardirError as ShardirError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)


class NanError(ShardirError, FloatingPointError):
    """A result has NaN, and the setting `debug_nans` is on."""


class InfinityError(ShardirError, FloatingPointError):
    """A result has an infinity, and the setting `debug_infs` is on."""


class UnknownSetting(ShardirError, AttributeError):
    """A setting does not exist."""


class SettingError(ShardirError, ValueError):
    """A setting does not accept the given value."""


class DeviceError(ShardirError, RuntimeError):
    """This machine does not have the requested device or platform."""


class MissingFileError(ShardirError, FileNotFoundError):
    """A file to be read does not exist."""


class CheckpointError(ShardirError, RuntimeError):
    """A checkpoint cannot be written, or does not contain the requested arrays."""


class MeshError(ShardirError, ValueError):
    """The devices cannot be arranged in the requested mesh."""


class ShardingError(ShardirError, ValueError):
    """A sharding is invalid, or does not fit the value to which it is applied."""


class CallbackShardingError(ShardingError, NotImplementedError):
    """A call of a Python function cannot have this sharding."""


class ShardingTypeError(ShardingError, TypeError):
    """An operation does not accept the shardings in the types of its operands, which mesh axes of
    type `AxisType.Explicit` shard."""


class ShardingMismatchError(ShardingTypeError, AssertionError):
    """A value does not have the sharding that `with_sharding_constraint` asserts."""


class IndivisibleError(ShardingError):
    """The sharding of an argument or result does not divide the size of a dimension evenly."""


class IncompatibleDevicesError(ShardirError, ValueError):
    """The arrays of one computation are on different devices, or list the devices in different
    orders.
    """


class TracedValueError(ConcretizationTypeError):
    """An operation needs the concrete elements of a traced value."""


class TracedTruthError(TracedValueError, TracerBoolConversionError):
    """An operation needs the truth value of a traced array."""


class TracedBoolError(TracedTruthError, ValueError):
    """An operation needs the truth value of a traced array that does not have exactly one
    element."""


class TracedArrayError(TracedValueError, TracerArrayConversionError):
    """A traced value is converted to a NumPy array."""


class TracedIntegerError(TracedValueError, TracerIntegerConversionError):
    """A traced value is used where Python needs an integer."""


class TracedShardingError(TracedValueError, AttributeError):
    """The devices or the sharding of a traced value are not decided until the program is
    compiled."""


class TracedMaskError(TracedValueError, NonConcreteBooleanIndexError):
    """A traced mask is used as an index, so the number of selected elements is unknown."""


class OutsideTraceError(ShardirError, RuntimeError):
    """An operation that is only valid inside of a trace is used outside of one."""


class LeakedTracerError(UnexpectedTracerError, RuntimeError):
    """A traced value is used outside of the trace to which it belongs, or after that trace has
    ended.
    """


class ArgumentError(ShardirError, TypeError, ValueError):
    """A function is called, or wrapped, with invalid arguments."""


class CompilerOptionError(ArgumentError, JaxRuntimeError):
    """An option of a compiler is unknown."""


class LostUpdateError(ArgumentError):
    """A function updates an argument in place, and the caller could not see the update."""


class NoMeshError(ArgumentError, RuntimeError):
    """A PartitionSpec is used where no mesh is given or set."""


class PipelineCostError(ShardirError, NotImplementedError):
    """A request for costs that cannot include the stages of a pipeline."""


class RecursiveError(ShardirError, RecursionError):
    """A function calls itself while it is traced, so tracing does not terminate."""


class DeletedArrayError(JaxRuntimeError):
    """An array is used after its buffers were donated or deleted."""


class NotAddressableError(ShardirError, RuntimeError):
    """An operation needs elements that are on devices of other processes."""


class NotAnArrayError(ShardirError, TypeError, ValueError):
    """A Python object cannot be converted to an array."""

    about: tuple[Any, Callable[[Any], str]] | tuple[()] = ()
    """The object, and a function that describes an object. The caller uses them to name the
    argument in the message, and to describe the object that the user passed.
    """


class NumberRangeError(ShardirError, OverflowError):
    """A Python number does not fit into the required element type."""


class ControlFlowError(ShardirError, TypeError, ValueError):
    """The function of a loop or branch has a signature that the control flow operation does not
    accept.
    """


class RandomError(ShardirError, ValueError, TypeError):
    """A random function is called with an invalid key, element type or shape."""


class KeyImplementationError(RandomError, TypeError):
    """A random key is created from an invalid seed or key implementation."""


class StructureError(ArgumentError, ValueError):
    """Two pytrees that must have the same structure do not."""


class AxisError(ShardirError, ValueError, IndexError):
    """An axis does not exist in the array, or is given twice."""


class ShapeError(ShardirError, ValueError, TypeError):
    """A shape is invalid, or does not fit the operation."""


class IndexingError(ShardirError, IndexError, TypeError, ValueError):
    """An index is invalid, out of bounds, or does not fit the array."""


class AxisNameError(ShardirError, NameError):
    """An axis name is not bound by an enclosing vmap, pmap or shard_map."""


class PermutationError(ShardirError, ValueError):
    """A permutation has positions out of range, or sends several shards to one position."""


class BatchError(ShardirError, ValueError):
    """A function is mapped over arguments whose mapped axes do not match."""


class ImmutableError(ShardirError, TypeError):
    """An array is updated in place."""


class UnknownMethod(ShardirError, AttributeError):
    """A method or an attribute does not exist."""

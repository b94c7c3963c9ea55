"""Checks before emission: element types, stream sizes, number of replicas, and tile memory.

The memory estimate is the peak sum of live tensors on one replica, spread evenly over its tiles.
Code, exchange buffers and copies that poplibs makes for its layouts add to it, so a program that
fills more than half of a tile gets a warning.
"""

from dataclasses import dataclass

from shardir.backends.emission import Emission, EmissionError, ProgramValue
from shardir.backends.ipu.codegen.device_types import ELEMENTS, SUPPORTED_REPLACEMENTS, device_bytes
from shardir.backends.ipu.codegen.multiply_add import find_multiply_adds
from shardir.display.byte_sizes import show_bytes
from shardir.ir.dtypes import RBG_KEYS
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import COMPLEX, TensorType

TILES_PER_IPU = 1472
"""Number of tiles of a Mk2 IPU."""
TILE_BYTES = 638976
"""Memory of one tile in bytes: 624 KiB."""
MAX_STREAM_BYTES = 128 * 2**20
"""Maximum bytes of one stream."""
WARNED_TILE_FRACTION = 0.5
"""Fraction of a tile's memory above which a program gets a warning."""


@dataclass(frozen=True, slots=True)
class ReplicaMemory:
    """Bytes on one replica: the arguments, and the peak of live tensors."""

    arguments: int
    peak: int

    @property
    def tile_bytes(self) -> int:
        """Return the peak in bytes per tile, spread evenly."""
        return -(-self.peak // TILES_PER_IPU)

    @property
    def tile_fraction(self) -> float:
        """Return the peak as a fraction of a tile's memory."""
        return self.tile_bytes / TILE_BYTES


def check_replicas(emission: Emission) -> None:
    """Raise `EmissionError` unless the number of devices is a power of two."""
    count = emission.mesh.size
    if count & (count - 1):
        below = 1 << count.bit_length() - 1
        raise EmissionError(
            f"mesh {emission.mesh.name!r} has {count} devices, but IPU systems have powers of "
            f"two; use a mesh of {below} or {2 * below}"
        )


def check_types(emission: Emission) -> None:
    """Raise `EmissionError` for the first value that is empty or whose element type IPUs lack."""
    block = emission.module.main.body
    between = find_multiply_adds(block).between
    for param in block.params:
        _check_value(param, None)
    for op in block.walk():
        for inner in op.blocks:
            for param in inner.params:
                _check_value(param, op)
        for value in op.results:
            if value not in between:
                _check_value(value, op)


def _check_value(value: Value, op: Op | None) -> None:
    dtype = value.type.dtype
    where = f" ({op.loc})" if op is not None and op.loc is not None else ""
    if dtype not in ELEMENTS and dtype != "key":
        reason, fix = _describe_lacking(dtype)
        raise EmissionError(f"%{value.name}: {value.type}{where} is of {reason}; {fix}")
    if value.type.size == 0:
        raise EmissionError(
            f"%{value.name}: {value.type}{where} has no elements, and Poplar has no empty "
            "variables; leave out what computes it"
        )


def _describe_lacking(dtype: str) -> tuple[str, str]:
    if dtype in SUPPORTED_REPLACEMENTS:
        to = SUPPORTED_REPLACEMENTS[dtype]
        return (
            "an element type that IPUs do not have",
            f"convert to {to} with astype, or emit with downcast={dtype}:{to}",
        )
    if dtype in COMPLEX:
        return (
            "complex numbers, which IPUs do not have",
            "keep the real and the imaginary part as two tensors of f32",
        )
    if dtype in RBG_KEYS:
        return (
            "keys of four words, which IPU programs do not have",
            "make keys of 'threefry2x32', as in random.key(seed, impl='threefry2x32')",
        )
    return ("an element type that IPUs do not have", "convert it to one of " + ", ".join(ELEMENTS))


def check_streams(emission: Emission) -> None:
    """Raise `EmissionError` for an argument or result that is too large for one stream."""
    for what, boundaries in (("argument", emission.arguments), ("result", emission.results)):
        for boundary in boundaries:
            _check_stream(what, boundary)


def _check_stream(what: str, boundary: ProgramValue) -> None:
    size = device_bytes(boundary.shard_type)
    if size > MAX_STREAM_BYTES:
        raise EmissionError(
            f"{what} {boundary.label!r} ({boundary.shard_type} a replica) takes "
            f"{show_bytes(size)}, and "
            f"a stream carries {show_bytes(MAX_STREAM_BYTES)}; shard it over more devices, or "
            "split it "
            "into several arguments"
        )


def check_reduced(emission: Emission) -> None:
    """Raise `EmissionError` for an unreduced argument or result."""
    for what, boundaries in (("argument", emission.arguments), ("result", emission.results)):
        for boundary in boundaries:
            if pending := boundary.sharding.unreduced:
                axes = ", ".join(axis.name for axis in pending)
                raise EmissionError(
                    f"{what} {boundary.label!r} is unreduced over {axes}, and the host "
                    "shards arrays without reducing them; reshard it so that it is reduced"
                )


def estimate_memory(emission: Emission) -> ReplicaMemory:
    """Return the memory that a replica needs."""
    block = emission.module.main.body
    arguments = sum(device_bytes(param.type) for param in block.params)
    return ReplicaMemory(arguments, arguments + _peak_bytes(block))


def check_memory(memory: ReplicaMemory) -> None:
    """Raise `EmissionError` if a tile's memory does not suffice."""
    if memory.tile_bytes > TILE_BYTES:
        raise EmissionError(
            f"the live values take {show_bytes(memory.peak)} on one replica, which is "
            f"{memory.tile_bytes} bytes on each of {TILES_PER_IPU} tiles of {TILE_BYTES}; shard "
            "them over more "
            "devices, or compute in smaller batches"
        )


def _peak_bytes(block: Block) -> int:
    """Return the peak of live bytes of values computed in a block; views count as copies."""
    last: dict[Value, int] = {}
    for i, op in enumerate(block.ops):
        for value in (*op.uses(), *op.results):
            last[value] = i
    for value in block.returns:
        last[value] = len(block.ops)
    made = {value for op in block.ops for value in op.results}
    ending: dict[int, list[Value]] = {}
    for value, i in last.items():
        if value in made:
            ending.setdefault(i, []).append(value)
    alive = peak = 0
    for i, op in enumerate(block.ops):
        alive += sum(_value_bytes(value.type) for value in op.results)
        peak = max(peak, alive + max(map(_inner_bytes, op.blocks), default=0))
        alive -= sum(_value_bytes(value.type) for value in ending.get(i, ()))
    return peak


def _value_bytes(type: TensorType) -> int:
    return device_bytes(type)


def _inner_bytes(block: Block) -> int:
    return sum(_value_bytes(param.type) for param in block.params) + _peak_bytes(block)

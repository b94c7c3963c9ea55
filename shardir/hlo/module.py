"""The parts of an HLO module that reports need."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from shardir.errors import ShardirError
from shardir.ir.location import Loc

MAX_DEVICES = 1 << 20
"""The maximum number of partitions, and of replicas, of a module."""
MAX_DIGITS = 18
"""The maximum number of digits of a number; XLA's integers have 64 bits."""


def parse_number(text: str) -> int | None:
    """Return the natural number of a text; `None` if it is none, or too large for 64 bits."""
    text = text.strip()
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None


class HloError(ShardirError, ValueError):
    """A module of HLO that cannot be described."""


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """The element type and the sizes of an array, such as `f32[8,64]`."""

    dtype: str
    sizes: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The number of bytes, rounded up; tokens and opaque values have none."""
        return -(-prod(self.sizes) * bits_per_element(self.dtype) // 8)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]"


Shape = ArrayShape | tuple["Shape", ...]
"""An array, or a tuple of shapes."""


def array_shapes(shape: Shape) -> Iterator[ArrayShape]:
    """Yield the arrays of a shape, those of nested tuples included."""
    if isinstance(shape, ArrayShape):
        yield shape
    else:
        for each in shape:
            yield from array_shapes(each)


def bits_per_element(dtype: str) -> int:
    """Return the size of an element type of HLO: the number in its name; 8 for `pred`."""
    if dtype in ("pred", "token", "opaque"):
        return 8 if dtype == "pred" else 0
    kind = dtype.lstrip("abcdefghijklmnopqrstuvwxyz")
    digits = "".join(c for c in kind.partition("e")[0] if c.isdigit())
    return int(digits) if digits else 0


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `attributes` are the texts after its operands, by name."""

    name: str
    shape: Shape
    opcode: str
    operands: tuple[str, ...]
    attributes: Mapping[str, str]
    loc: Loc | None
    op_name: str

    @property
    def callees(self) -> tuple[str, ...]:
        """The names of the computations that the instruction calls once."""
        names = [self.attributes[name] for name in ("to_apply", "calls") if name in self.attributes]
        for name in ("branch_computations", "called_computations"):
            names += self.attributes.get(name, "").strip("{}").split(",")
        for name in ("true_computation", "false_computation"):
            names.append(self.attributes.get(name, ""))
        return tuple(name.strip().lstrip("%") for name in names if name.strip())


@dataclass(frozen=True, slots=True)
class Computation:
    """A computation: its instructions by name in order, and its last one."""

    name: str
    instructions: Mapping[str, Instruction]
    root: str


@dataclass(frozen=True, slots=True)
class HloModule:
    """A module. `attributes` are those of its first line."""

    name: str
    attributes: Mapping[str, str]
    computations: Mapping[str, Computation]
    entry: str

    @property
    def partition_count(self) -> int:
        """The number of partitions of the program; 1 if it is not partitioned."""
        return self._count("num_partitions")

    @property
    def is_before_partitioning(self) -> bool:
        """The module states shardings that XLA's partitioner has not applied yet."""
        if self.partition_count == 1 or self.entry.endswith("_spmd"):
            return False
        return "xla.sdy.meshes" in self.attributes.get("frontend_attributes", "") or any(
            "sharding" in each.attributes and each.opcode not in ("parameter", "tuple")
            for each in self.computations[self.entry].instructions.values()
        )

    @property
    def replica_count(self) -> int:
        """The number of replicas of the program."""
        return self._count("replica_count")

    def _count(self, name: str) -> int:
        count = parse_number(self.attributes.get(name, "1")) or 1
        if count > MAX_DEVICES:
            raise HloError(
                f"the module {self.name} has {name}={count}; at most {MAX_DEVICES} devices are "
                "supported"
            )
        return count

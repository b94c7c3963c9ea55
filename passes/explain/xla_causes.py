"""Causes of XLA's collectives, from the instructions around them.

XLA states for a collective only the operation that its partitioner inserted it for (`op_name`).
`find_xla_causes` also follows the result: XLA replicates an operation that it cannot partition if
each device slices its part of the result again.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from shardir.hlo.collectives import KINDS
from shardir.hlo.module import Computation, HloModule, Instruction

REQUESTING_PRIMITIVES = {
    "psum": "psum", "psum_invariant": "psum", "pmax": "pmax", "pmin": "pmin",
    "all_gather": "all_gather", "all_gather_invariant": "all_gather",
    "all_gather_reduced": "all_gather", "reduce_scatter": "psum_scatter",
    "all_to_all": "all_to_all", "ragged_all_to_all": "ragged_all_to_all", "ppermute": "ppermute",
    "pbroadcast": "pbroadcast",
}  # fmt: skip
"""The functions of `jax.lax` that request a collective, by the primitive in `op_name`."""
ANNOTATING_PRIMITIVES = ("sharding_constraint", "reshard", "mesh_cast", "device_put")
_MOVING_OPCODES = frozenset({
    "all-gather", "all-gather-start", "all-gather-done", "all-reduce", "all-to-all", "bitcast",
    "bitcast-convert", "broadcast", "collective-permute", "concatenate", "convert", "copy",
    "copy-done", "copy-start", "get-tuple-element", "optimization-barrier", "pad", "reshape",
    "select", "slice", "transpose", "tuple", "dynamic-slice", "parameter", "constant",
    "partition-id", "multiply", "add", "subtract", "compare", "clamp", "divide", "remainder",
})  # fmt: skip
"""Instructions that move elements, and those that compute the index of a part."""
_INDEX_OPCODES = frozenset({"multiply", "add", "subtract", "compare", "clamp", "divide",
                            "remainder"})  # fmt: skip
_MAX_FOLLOWED_USERS = 1_000
"""The maximum number of users that are followed from one collective."""
_WRAPPER = re.compile(r"(?:jit|pjit|jvp|transpose|vmap|checkpoint|remat\d?|rematted_computation|"
                      r"shard_map|while|body|cond|scan|closed_call|custom_[a-z_]+|branch_\d+_fun|"
                      r"main|core_call)\b.*")  # fmt: skip


_ELEMENTWISE_PRIMITIVES = frozenset({
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "cbrt", "ceil", "clamp", "complex", "conj", "convert_element_type", "copy", "cos", "cosh",
    "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "imag", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max",
    "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow", "real", "rem", "round", "rsqrt",
    "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin",
    "sinh", "sqrt", "square", "sub", "tan", "tanh", "xor",
})  # fmt: skip
"""The primitives of JAX that need operands and results of one sharding, but no other elements."""
_OTHER_REDUCTIONS = frozenset({
    "argmax", "argmin", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
    "reduce_xor",
})  # fmt: skip
"""The reductions of JAX that are no sums."""
_CONTRACTING_PRIMITIVES = frozenset({"conv_general_dilated", "dot_general", "ragged_dot_general"})
"""The primitives of JAX that sum products."""


_HINTS = {
    "top_k": "in jax.shard_map, take top_k of each shard, all_gather these elements, and take "
    "top_k of them",
    "argmax": "in jax.shard_map, reduce each shard and combine the results with pmax",
    "gather": "index with jnp.take_along_axis or jax.vmap if an index is jnp.arange, so that XLA "
    "sees that each shard uses its own elements only; otherwise leave the indexed dimension "
    "unsharded",
    "pure_callback": "call it in jax.shard_map, on the shard of each device",
    "custom_call": "call it in jax.shard_map, on the shard of each device, or give it a rule with "
    "jax.experimental.custom_partitioning",
    "ffi_call": "call it in jax.shard_map, on the shard of each device, or give it a rule with "
    "jax.experimental.custom_partitioning",
    "random_bits": "jax.config.update('jax_threefry_partitionable', True) generates random numbers "
    "without communication",
}
"""Changes that avoid a collective but are not annotations, by primitive."""


class XlaCauseKind(Enum):
    """The kind of reason for which XLA communicates."""

    REQUEST = "the program requests it"
    REMATERIALIZATION = "involuntary full rematerialization"
    REPLICATION = "XLA replicates the operation"
    ANNOTATION = "an annotation"
    PARTIAL_SUMS = "partial sums"
    LOOKUP = "a lookup in a sharded dimension"
    SHIFT = "elements cross the boundaries of shards"
    EXCHANGE = "another dimension is sharded"
    OPERAND = "a gathered operand"
    RESULT = "a replicated result"


@dataclass(frozen=True, slots=True)
class XlaCause:
    """The reason of one collective of XLA. `operation` is JAX's primitive; it is empty if XLA does
    not state it. `text` is a sentence, `hint` a change that is not an annotation."""

    kind: XlaCauseKind
    operation: str
    text: str
    hint: str = ""


def find_xla_causes(module: HloModule) -> dict[str, XlaCause]:
    """Return the causes of the collectives of a module by the names of their instructions."""
    causes = {}
    for computation in module.computations.values():
        surroundings = _Surroundings(module, computation)
        for instruction in computation.instructions.values():
            kind = instruction.opcode.removesuffix("-start")
            if kind in KINDS:
                cause = _cause(surroundings, instruction, kind)
                hint = _HINTS.get(_hinted_operation(cause.operation, instruction.op_name), "")
                causes[instruction.name] = replace(cause, hint=hint)
    return causes


def primitive_of(op_name: str) -> str:
    """Return the primitive of an `op_name` such as `jit(f)/jit(fft)/fft`, without parameters."""
    last = re.sub(r"\[.*", "", op_name).rpartition("/")[2]
    match = re.match(r"[a-z][\w\-]*", last)
    return "" if match is None or _WRAPPER.fullmatch(last) else match[0]


def _is_derivative(instruction: Instruction) -> bool:
    """Return whether an instruction computes a derivative of reverse mode."""
    return "transpose(" in instruction.op_name


def _hinted_operation(operation: str, op_name: str) -> str:
    if re.search(r"threefry|random_bits|_uniform|_normal\b", op_name):
        return "random_bits"
    if "take_along_axis" in op_name:  # The line already states what the hint of gather proposes.
        return ""
    return "argmax" if "argm" in op_name and operation == "reduce" else operation


def _cause(surroundings: "_Surroundings", collective: Instruction, kind: str) -> XlaCause:
    name = primitive_of(collective.op_name)
    shown = name or "this line"
    if name in REQUESTING_PRIMITIVES:
        function = REQUESTING_PRIMITIVES[name]
        return XlaCause(
            XlaCauseKind.REQUEST, name, f"the program requests it: jax.lax.{function} in shard_map"
        )
    if kind == "all-gather":
        is_sliced, computing = surroundings.follow(collective)
        if not name and not is_sliced and not computing:
            return XlaCause(
                XlaCauseKind.RESULT,
                name,
                "the function returns this array replicated on every device; a dimension is "
                "sharded in results only if its size is divisible by the number of shards",
            )
        if is_sliced and not computing and not name.startswith("reduce_window"):
            return XlaCause(
                XlaCauseKind.REMATERIALIZATION,
                name,
                "XLA gathers the array, and each device slices another part of it (an involuntary "
                "full rematerialization): XLA cannot convert one sharding into the other directly",
            )
        if is_sliced and computing:
            replicated = next(iter(computing)) or shown
            return XlaCause(
                XlaCauseKind.REPLICATION,
                replicated,
                f"XLA does not partition {replicated} here: it gathers the operand, each device "
                "computes the whole result, and then slices its part of it",
            )
    if name in ANNOTATING_PRIMITIVES:
        return XlaCause(
            XlaCauseKind.ANNOTATION, name, f"an annotation requests another sharding ({name})"
        )
    if kind in ("all-reduce", "reduce-scatter") and surroundings.is_in_backward_pass(collective):
        return XlaCause(
            XlaCauseKind.PARTIAL_SUMS,
            name,
            f"{shown} sums over a sharded dimension in the backward pass: each device has a "
            "partial derivative of an intermediate value, which other derivatives need",
        )
    return XlaCause(*_cause_by_kind(kind, name, shown, collective.op_name))


def _cause_by_kind(kind: str, name: str, shown: str, op_name: str) -> tuple[XlaCauseKind, str, str]:
    if kind in ("all-reduce", "reduce-scatter"):
        if name in ("gather", "dynamic_slice", "scatter", "dynamic_update_slice"):
            return (
                XlaCauseKind.LOOKUP,
                name,
                f"{name} indexes a sharded dimension: each device finds the elements of its part, "
                "and the sum combines them",
            )
        if "transpose(" in op_name:  # The derivative of an argument of the program.
            return (
                XlaCauseKind.PARTIAL_SUMS,
                name,
                "each device has the derivative with respect to its part of the data; the sum "
                "combines them",
            )
        does = "reduces" if name in _OTHER_REDUCTIONS else "sums over"
        return (
            XlaCauseKind.PARTIAL_SUMS,
            name,
            f"{shown} {does} a sharded dimension: each device has a partial result",
        )
    if kind == "collective-permute":
        return (
            XlaCauseKind.SHIFT,
            name,
            f"{shown} moves elements of a sharded dimension to other shards",
        )
    if kind in ("all-to-all", "ragged-all-to-all"):
        return (
            XlaCauseKind.EXCHANGE,
            name,
            f"the sharding moves to another dimension at {shown}",
        )
    if name in _ELEMENTWISE_PRIMITIVES:
        return (
            XlaCauseKind.OPERAND,
            name,
            f"{name} needs one sharding for its operands and results: XLA gathers an array with "
            "another sharding",
        )
    return (
        XlaCauseKind.OPERAND,
        name,
        f"{shown} uses all elements of a dimension that its operand has sharded",
    )


@dataclass
class _Surroundings:
    """The users of the instructions of a computation."""

    module: HloModule
    computation: Computation
    users: Mapping[str, list[Instruction]] = field(init=False)
    indices: set[str] = field(init=False)
    """The instructions that compute with the number of the partition only."""

    def __post_init__(self) -> None:
        users: dict[str, list[Instruction]] = {}
        self.indices = set()
        for each in self.computation.instructions.values():
            for operand in dict.fromkeys(each.operands):
                users.setdefault(operand, []).append(each)
            if each.opcode == "partition-id" or (
                each.opcode in (*_INDEX_OPCODES, "convert", "dynamic-slice", "fusion", "reshape",
                                "bitcast", "call")
                and self._is_scalar(each)
                and any(operand in self.indices for operand in each.operands)
            ):  # fmt: skip
                self.indices.add(each.name)
        self.users = users

    @staticmethod
    def _is_scalar(instruction: Instruction) -> bool:
        return not isinstance(instruction.shape, tuple) and all(
            size == 1 for size in instruction.shape.sizes
        )

    def follow(self, start: Instruction) -> tuple[bool, dict[str, None]]:
        """Return whether devices slice their parts of a value after other computations, and the
        primitives of these computations.
        """
        computing: dict[str, None] = {}
        pending, seen = [start.name], {start.name}
        is_sliced = False
        while pending and len(seen) < _MAX_FOLLOWED_USERS:
            for user in self.users.get(pending.pop(0), ()):
                if user.name in seen:
                    continue
                seen.add(user.name)
                if self._slices_by_partition(user):
                    is_sliced = True
                    for name in self._computing_primitives(user):
                        computing.setdefault(name)
                    continue
                if user.opcode == "while" or user.name in self.indices:
                    continue
                for name in self._computing_primitives(user):
                    computing.setdefault(name)
                pending.append(user.name)
        return is_sliced, computing

    def is_in_backward_pass(self, collective: Instruction) -> bool:
        """Return whether contractions of the backward pass use a derivative.

        Others only use the derivatives of intermediate values; the derivatives of arguments are
        results.
        """
        if not _is_derivative(collective):
            return False
        pending, seen = [collective.name], {collective.name}
        while pending and len(seen) < _MAX_FOLLOWED_USERS:
            for user in self.users.get(pending.pop(0), ()):
                if any(
                    _is_derivative(each)
                    and each.opcode not in _MOVING_OPCODES
                    and primitive_of(each.op_name) in _CONTRACTING_PRIMITIVES
                    for each in (tuple(self._inner(user)) or (user,))
                ):
                    return True
                if user.name not in seen and user.opcode != "while":
                    seen.add(user.name)
                    pending.append(user.name)
        return False

    def _slices_by_partition(self, user: Instruction) -> bool:
        """Return whether an instruction selects a part by the number of the partition."""
        if not any(operand in self.indices for operand in user.operands):
            return False
        return user.opcode == "dynamic-slice" or any(
            inner.opcode == "dynamic-slice" for inner in self._inner(user)
        )

    def _computing_primitives(self, user: Instruction) -> Iterator[str]:
        if user.opcode in ("fusion", "call"):
            for inner in self._inner(user):
                if inner.opcode not in _MOVING_OPCODES:
                    yield primitive_of(inner.op_name)
        elif user.opcode not in _MOVING_OPCODES:
            yield primitive_of(user.op_name) or user.opcode

    def _inner(self, user: Instruction) -> Iterator[Instruction]:
        for name in user.callees if user.opcode in ("fusion", "call") else ():
            called = self.module.computations.get(name)
            yield from called.instructions.values() if called else ()

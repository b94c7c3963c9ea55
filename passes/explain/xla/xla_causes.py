"""Causes of XLA's collectives, from the instructions around them.

XLA states for a collective only the operation that its partitioner inserted it for (`op_name`).
`find_xla_causes` also follows the result: XLA replicates an operation that it cannot partition if
each device slices its part of the result again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from shardir.hlo.collectives import KINDS, collective_groups
from shardir.hlo.groups import Groups
from shardir.hlo.module import HloModule, Instruction
from shardir.hlo.value_flow import ValueFlow, ValueNode

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
    "while", "conditional", "call", "fusion",
})  # fmt: skip
"""Instructions that move elements, and those that compute the index of a part."""
_INDEX_OPCODES = frozenset({
    "add", "bitcast", "clamp", "compare", "convert", "divide", "dynamic-slice", "multiply",
    "remainder", "reshape", "subtract",
})  # fmt: skip
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
_CALLBACK_PRIMITIVES = ("debug_callback", "io_callback", "pure_callback")
"""The primitives of JAX that call Python functions."""


_HINTS = {
    "top_k": "in jax.shard_map, take top_k of each shard, all_gather these elements, and take "
    "top_k of them",
    "argmax": "in jax.shard_map, reduce each shard and combine the results with pmax",
    "gather": "index with jnp.take_along_axis or jax.vmap if an index is jnp.arange, so that XLA "
    "sees that each shard uses its own elements only; otherwise leave the indexed dimension "
    "unsharded",
    **dict.fromkeys(_CALLBACK_PRIMITIVES, "call it in jax.shard_map, on the shard of each device"),
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
    uses = _Uses(ValueFlow(module))
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            kind = instruction.opcode.removesuffix("-start")
            if kind in KINDS:
                cause = _cause(uses, ValueNode(computation.name, instruction.name), kind)
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


def _cause(uses: "_Uses", node: ValueNode, kind: str) -> XlaCause:
    collective = uses.flow.instruction(node)
    name = primitive_of(collective.op_name)
    shown = name or "this line"
    if name in REQUESTING_PRIMITIVES:
        function = REQUESTING_PRIMITIVES[name]
        return XlaCause(
            XlaCauseKind.REQUEST, name, f"the program requests it: jax.lax.{function} in shard_map"
        )
    if kind == "all-gather":
        use = uses.follow(node)
        if not name and not use.is_sliced and not use.is_computed_with:
            return XlaCause(
                XlaCauseKind.RESULT,
                name,
                "the function returns this array replicated on every device; a dimension is "
                "sharded in results only if its size is divisible by the number of shards",
            )
        if use.is_sliced and not use.replicated and not name.startswith("reduce_window"):
            return XlaCause(
                XlaCauseKind.REMATERIALIZATION,
                name,
                "XLA gathers the array, and each device slices another part of it (an involuntary "
                "full rematerialization): XLA cannot convert one sharding into the other directly",
            )
        if use.replicated:
            replicated = use.replicated[0] or shown
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
    if kind in ("all-reduce", "reduce-scatter") and uses.is_in_backward_pass(node):
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
    if name in _CALLBACK_PRIMITIVES:
        return (
            XlaCauseKind.OPERAND,
            name,
            f"{name} calls the function once, with all elements of its operands",
        )
    return (
        XlaCauseKind.OPERAND,
        name,
        f"{shown} uses all elements of a dimension that its operand has sharded",
    )


@dataclass(frozen=True, slots=True)
class _GatheredUse:
    """The use of a gathered array. `replicated` has the primitives that all devices compute with it
    before each slices its part; `is_computed_with` states that an operation uses it otherwise than
    by moving elements."""

    is_sliced: bool
    replicated: tuple[str, ...]
    is_computed_with: bool


@dataclass
class _Uses:
    """The uses of values of a module, across loops, branches, calls and fusions."""

    flow: ValueFlow
    indices: set[ValueNode] = field(init=False)
    """The values that are computed from the number of the partition by arithmetic on indices."""

    def __post_init__(self) -> None:
        self.indices = set()
        for computation in self.flow.module.computations.values():
            for each in computation.instructions.values():
                if each.opcode == "partition-id":
                    self.indices.add(ValueNode(computation.name, each.name))
        pending = list(self.indices)
        while pending:
            for user in self.flow.users.get(pending.pop(), ()):
                opcode = self.flow.instruction(user).opcode
                if user not in self.indices and (
                    opcode in _INDEX_OPCODES or self.flow.is_forwarded(user)
                ):
                    self.indices.add(user)
                    pending.append(user)

    def follow(self, start: ValueNode) -> _GatheredUse:
        """Return the use of an all-gather.

        A value that differs between the devices of the group is not followed: its computation is
        partitioned, also if one of its operands is gathered.
        """
        different = self.flow.differing_values(self._groups(start))
        order: dict[ValueNode, list[ValueNode]] = {start: []}
        """The values that were reached, with the values that they use."""
        slicing: list[ValueNode] = []
        is_computed_with = False
        pending = [start]
        while pending and len(order) < _MAX_FOLLOWED_USERS:
            node = pending.pop(0)
            for user in self.flow.users.get(node, ()):
                if user in order:
                    order[user].append(node)
                elif self._slices_by_partition(user, node):
                    slicing.append(node)
                else:
                    is_computed_with |= self._computes(user)
                    if user not in different:
                        order[user] = [node]
                        pending.append(user)
        before = _reach(slicing, order)
        return _GatheredUse(
            bool(slicing),
            tuple(
                self._primitive(each) for each in order if each in before and self._computes(each)
            ),
            is_computed_with,
        )

    def is_in_backward_pass(self, collective: ValueNode) -> bool:
        """Return whether contractions of the backward pass use a derivative.

        Others only use the derivatives of intermediate values; the derivatives of arguments are
        results, or the optimizer uses them.
        """
        if not _is_derivative(self.flow.instruction(collective)):
            return False
        pending, seen = [collective], {collective}
        while pending:
            for user in self.flow.users.get(pending.pop(), ()):
                instruction = self.flow.instruction(user)
                is_derivative = _is_derivative(instruction)
                if (
                    is_derivative
                    and self._computes(user)
                    and primitive_of(instruction.op_name) in _CONTRACTING_PRIMITIVES
                ):
                    return True
                if user not in seen and (
                    is_derivative or not instruction.op_name or self.flow.is_forwarded(user)
                ):
                    seen.add(user)
                    pending.append(user)
        return False

    def _groups(self, collective: ValueNode) -> Groups:
        """Return the groups of a collective; one of all devices if they are unknown."""
        module = self.flow.module
        groups = collective_groups(module, self.flow.instruction(collective))
        count = module.partition_count * module.replica_count
        return groups or frozenset([frozenset(range(count))])

    def _slices_by_partition(self, user: ValueNode, operand: ValueNode) -> bool:
        """Return whether an instruction selects a part of an operand by the number of the
        partition."""
        instruction = self.flow.instruction(user)
        if instruction.opcode != "dynamic-slice" or instruction.operands[0] != operand.instruction:
            return False
        starts = (ValueNode(user.computation, name) for name in instruction.operands[1:])
        return any(start in self.indices for start in starts)

    def _computes(self, node: ValueNode) -> bool:
        """Return whether an instruction does more than to move elements."""
        return self.flow.instruction(node).opcode not in _MOVING_OPCODES

    def _primitive(self, node: ValueNode) -> str:
        instruction = self.flow.instruction(node)
        opcode = "" if node.computation in self.flow.fused else instruction.opcode
        return primitive_of(instruction.op_name) or opcode


def _reach(starts: list[ValueNode], inputs: Mapping[ValueNode, list[ValueNode]]) -> set[ValueNode]:
    """Return the values from which values are computed, and these values."""
    pending, found = list(starts), set(starts)
    while pending:
        for each in inputs[pending.pop()]:
            if each not in found:
                found.add(each)
                pending.append(each)
    return found

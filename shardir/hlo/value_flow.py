"""The flow of values between the instructions of a module, across its loops, branches and calls."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shardir.hlo.collectives import KINDS, collective_groups
from shardir.hlo.groups import Groups, parse_shard_groups
from shardir.hlo.module import Computation, HloModule, Instruction, parse_number

_COPIES_OF_TUPLES = ("copy", "optimization-barrier")
_FORWARDING_OPCODES = frozenset({
    "call", "conditional", "copy", "fusion", "get-tuple-element", "optimization-barrier",
    "parameter", "tuple", "while",
})  # fmt: skip
_EQUALIZING_KINDS = ("all-gather", "all-reduce", "collective-broadcast")
"""Collectives whose result is the same on all devices of a group."""
_OPCODES_THAT_DIFFER = ("partition-id", "replica-id", "infeed", "recv")


@dataclass(frozen=True, slots=True)
class ValueNode:
    """A value: the result of an instruction, or one element of it if `element` is not `None`."""

    computation: str
    instruction: str
    element: int | None = None


@dataclass
class ValueFlow:
    """The values from which each value of a module is computed, and the users of each value.

    The parameters of a loop's body, of a branch, of a called and of a fused computation have the
    operands of their callers as inputs, and loops have the results of their bodies.
    """

    module: HloModule
    inputs: dict[ValueNode, dict[ValueNode, None]] = field(init=False, default_factory=dict)
    users: dict[ValueNode, list[ValueNode]] = field(init=False, default_factory=dict)
    fused: set[str] = field(init=False, default_factory=set)
    """The names of fused computations."""
    _different: dict[Groups, set[ValueNode]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for computation in self.module.computations.values():
            for instruction in computation.instructions.values():
                for node, inputs in self._edges(computation, instruction):
                    self.inputs.setdefault(node, {}).update(dict.fromkeys(inputs))
        for node, sources in self.inputs.items():
            for source in sources:
                self.users.setdefault(source, []).append(node)

    def instruction(self, node: ValueNode) -> Instruction:
        """Return the instruction that computes a value."""
        return self.module.computations[node.computation].instructions[node.instruction]

    def is_forwarded(self, node: ValueNode) -> bool:
        """Return whether a value is one of its inputs: an element, a parameter, or a result of a
        loop, a branch or a call."""
        return self.instruction(node).opcode in _FORWARDING_OPCODES

    def differing_values(self, groups: Groups) -> set[ValueNode]:
        """Return the values that may differ between the devices of one of the groups.

        A parameter of the program without a sharding, or with one of an unknown form, is assumed
        to be equal.
        """
        found = self._different.get(groups)
        if found is None:
            found = self._different[groups] = self._find_differing_values(groups)
        return found

    def _find_differing_values(self, groups: Groups) -> set[ValueNode]:
        equal: set[ValueNode] = set()
        pending: list[ValueNode] = []
        for computation in self.module.computations.values():
            for op in computation.instructions.values():
                nodes = list(_nodes(computation, op.name))
                verdict = self._differs_by_itself(computation, op, groups)
                if verdict is True:
                    pending += nodes
                elif verdict is False:
                    equal.update(nodes)
        found = set(pending)
        while pending:
            for user in self.users.get(pending.pop(), ()):
                if user not in found and user not in equal:
                    found.add(user)
                    pending.append(user)
        return found

    def _differs_by_itself(
        self, computation: Computation, op: Instruction, groups: Groups
    ) -> bool | None:
        """Return whether a value differs in any case; `None` if it does if its inputs do."""
        kind = op.opcode.removesuffix("-start")
        if kind in KINDS:
            joined = collective_groups(self.module, op) or frozenset()
            if kind in _EQUALIZING_KINDS and _covers(joined, groups):
                return False
            is_distributing = kind not in _EQUALIZING_KINDS
            return None if _commutes(joined, groups, is_distributing) else True
        if op.opcode == "parameter" and computation.name == self.module.entry:
            count = self.module.partition_count
            shards = parse_shard_groups(op.attributes.get("sharding", ""), count)
            return shards is not None and not _covers(shards, groups)
        return True if op.opcode in _OPCODES_THAT_DIFFER else None

    def _edges(
        self, computation: Computation, op: Instruction
    ) -> Iterator[tuple[ValueNode, Iterable[ValueNode]]]:
        whole, *elements = _nodes(computation, op.name)
        operands = [name for name in op.operands if name in computation.instructions]
        if op.opcode == "tuple" and len(operands) == len(elements):
            yield whole, elements
            for node, operand in zip(elements, operands, strict=True):
                yield node, [ValueNode(computation.name, operand)]
            return
        if op.opcode == "get-tuple-element" and operands:
            index = parse_number(op.attributes.get("index", ""))
            yield whole, [_element(computation, operands[0], index)]
            for node in elements:
                yield node, [whole]
            return
        if op.opcode in _COPIES_OF_TUPLES and elements and operands:
            yield whole, elements
            for node in elements:
                yield node, [_element(computation, operands[0], node.element)]
            return
        called = list(self._calls(computation, op, operands))
        if not called:
            if op.opcode != "parameter":
                yield whole, [ValueNode(computation.name, operand) for operand in operands]
            for node in elements:
                yield node, [whole]
            return
        if elements:
            yield whole, elements
        for callee, parameters, returns in called:
            for number, sources in parameters.items():
                for node in _parameter_nodes(callee, number):
                    yield node, [_element(*source, node.element) for source in sources]
            if returns:
                for node in elements or [whole]:
                    yield node, [_element(callee, callee.root, node.element)]
        if op.opcode == "while":
            for node in elements or [whole]:
                yield node, [_element(computation, operands[0], node.element)]
        elif op.opcode == "conditional":
            for node in elements or [whole]:
                yield node, [ValueNode(computation.name, operands[0])]

    def _calls(
        self, computation: Computation, op: Instruction, operands: list[str]
    ) -> Iterator[tuple[Computation, dict[int, list[tuple[Computation, str]]], bool]]:
        """Yield the computations that an instruction calls, the values of their parameters, and
        whether the results of the computation are results of the instruction."""
        if op.opcode == "while" and operands:
            body = self._computation(op.attributes.get("body", ""))
            carried = [(computation, operands[0])]
            if body is not None:
                carried.append((body, body.root))
                yield body, {0: carried}, True
            condition = self._computation(op.attributes.get("condition", ""))
            if condition is not None:
                yield condition, {0: carried}, False
        elif op.opcode == "conditional":
            for name, operand in zip(op.callees, operands[1:], strict=False):
                if (branch := self._computation(name)) is not None:
                    yield branch, {0: [(computation, operand)]}, True
        elif op.opcode in ("call", "fusion"):
            for name in op.callees:
                if (callee := self._computation(name)) is not None:
                    if op.opcode == "fusion":
                        self.fused.add(name)
                    numbered = enumerate(operands)
                    yield callee, {number: [(computation, x)] for number, x in numbered}, True

    def _computation(self, name: str) -> Computation | None:
        return self.module.computations.get(name.lstrip("%"))


def _nodes(computation: Computation, name: str) -> Iterator[ValueNode]:
    """Yield the result of an instruction, and its elements if it is a tuple."""
    yield ValueNode(computation.name, name)
    shape = computation.instructions[name].shape
    if isinstance(shape, tuple):
        for element in range(len(shape)):
            yield ValueNode(computation.name, name, element)


def _element(computation: Computation, name: str, element: int | None) -> ValueNode:
    """Return an element of an instruction, or its result if that is no tuple of so many."""
    whole, *elements = _nodes(computation, name)
    if element is None or element >= len(elements):
        return whole
    return elements[element]


def _parameter_nodes(computation: Computation, number: int) -> Iterator[ValueNode]:
    """Yield the nodes of a parameter to which a caller's value flows: its elements, or itself."""
    for each in computation.instructions.values():
        if each.opcode == "parameter" and each.operands == (str(number),):
            whole, *elements = _nodes(computation, each.name)
            yield from elements or [whole]


def _covers(joined: Groups, groups: Groups) -> bool:
    """Return whether the devices of each group belong to one of the other groups."""
    return all(any(group <= other for other in joined) for group in groups)


def _commutes(joined: Groups, groups: Groups, is_distributing: bool) -> bool:
    """Return whether a collective over other groups computes equal results of equal operands.

    The devices with which two devices of a group communicate must be pairwise in one group. If the
    collective distributes parts, the two devices must also receive the same part.
    """
    partners = {device: sorted(group) for group in joined for device in group}
    group_of = {device: group for group in groups for device in group}
    for group in groups:
        first, *rest = sorted(group)
        for other in rest:
            pair = partners.get(first), partners.get(other)
            if pair[0] is None or pair[1] is None or len(pair[0]) != len(pair[1]):
                return False
            if is_distributing and pair[0].index(first) != pair[1].index(other):
                return False
            for a, b in zip(pair[0], pair[1], strict=True):
                if a not in group_of or b not in group_of[a]:
                    return False
    return True

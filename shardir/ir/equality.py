"""Structural equality of modules, and the first difference.

Values correspond if they are defined at the same position, so modules can be equal although values
compare by identity. Names, shardings and attributes are compared; locations and reasons (`why`)
only on request. Attributes are compared bitwise: 1, 1.0 and true differ, a NaN equals itself, and
0.0 differs from -0.0.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import takewhile

from shardir.ir.host_function import HostFunction
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import Attr
from shardir.text.printer import Printer, print_mesh, unique_names


def are_equal(a: Module, b: Module, *, names: bool = True, locations: bool = False) -> bool:
    """Return whether the modules are equal; with `names=False`, value names may differ."""
    return find_difference(a, b, names=names, locations=locations) is None


def find_difference(
    a: Module, b: Module, *, names: bool = True, locations: bool = False
) -> str | None:
    """Return a description of the first difference in program order, or `None`."""
    return next(_compare_modules(a, b, names, locations), None)


def _compare_modules(a: Module, b: Module, names: bool, locations: bool) -> Iterator[str]:
    for one, other in zip(a.meshes, b.meshes, strict=False):
        if one != other:
            yield _format_difference("a mesh differs", print_mesh(one), print_mesh(other))
    yield from _compare_lengths("meshes", a.meshes, b.meshes)
    for f, g in zip(a.functions, b.functions, strict=False):
        if f.name != g.name:
            yield _format_difference("a function differs", f"@{f.name}", f"@{g.name}")
        yield from _FunctionComparison(a, f, b, g, names, locations).differences()
    yield from _compare_lengths("functions", a.functions, b.functions)


class _FunctionComparison:
    """Compares two functions; `same` maps values of the first to those of the second."""

    def __init__(
        self, a: Module, f: Function, b: Module, g: Function, names: bool, locations: bool
    ) -> None:
        self.f, self.g, self.names, self.locations = f, g, names, locations
        self.printers = Printer(a.meshes, locations), Printer(b.meshes, locations)
        self.where = f"@{f.name}"
        self.same: dict[Value, Value] = {}

    def differences(self) -> Iterator[str]:
        yield from self.compare_blocks(self.f.body, self.g.body)
        if self.f.result_shardings != self.g.result_shardings or self.f.spmd != self.g.spmd:
            yield _format_difference(f"{self.where}: the signature differs", *self.signatures())

    def signatures(self) -> tuple[str, str]:
        """Return the signature of each function in one line."""
        one, other = (
            " ".join(map(str.strip, takewhile(_is_signature_line, printer.function(function))))
            for printer, function in zip(self.printers, (self.f, self.g), strict=True)
        )
        return one, other

    def compare_blocks(self, a: Block, b: Block) -> Iterator[str]:
        yield from _compare_lengths(f"parameters of {self.where}", a.params, b.params)
        for p, q in zip(a.params, b.params, strict=True):
            if not self.define_pair(p, q):
                texts = (
                    printer.param(value, unique_names(function))
                    for printer, value, function in zip(
                        self.printers, (p, q), (self.f, self.g), strict=True
                    )
                )
                yield _format_difference(f"{self.where}: a parameter differs", *texts)
        for op, other in zip(a.ops, b.ops, strict=False):
            if what := self.compare_ops(op, other):
                yield self.format_ops(what, op, other)
            for block, inner in zip(op.blocks, other.blocks, strict=True):
                yield from self.compare_blocks(block, inner)
            if not all(map(self.define_pair, op.results, other.results)):
                yield self.format_ops("a result differs", op, other)
        if len(a.ops) != len(b.ops):
            longer, at, which = (a, self.f, 0) if len(a.ops) > len(b.ops) else (b, self.g, 1)
            line = self.printers[which].op(
                longer.ops[min(len(a.ops), len(b.ops))], unique_names(at)
            )
            word = ("first", "second")[which]
            yield f"{self.where}: only the {word} has\n  {line}"
        if not self.are_same_uses(a.returns, b.returns):
            texts = (
                ", ".join(unique_names(function)[v] for v in values)
                for function, values in ((self.f, a.returns), (self.g, b.returns))
            )
            yield _format_difference(f"{self.where}: the returned values differ", *texts)

    def compare_ops(self, a: Op, b: Op) -> str | None:
        """Return the difference between two operations, ignoring blocks and results, or `None`."""
        if a.spec is not b.spec:
            return "the operation differs"
        if not self.are_same_uses(a.operands, b.operands):
            return "the operands differ"
        if list(a.attrs) != list(b.attrs) or not are_attrs_equal(
            tuple(a.attrs.values()), tuple(b.attrs.values())
        ):
            return "the attributes differ"
        if len(a.results) != len(b.results):
            return "the number of results differs"
        if len(a.blocks) != len(b.blocks):
            return "the number of blocks differs"
        if self.locations and (a.loc, a.why) != (b.loc, b.why):
            return "the origin differs"
        return None

    def format_ops(self, what: str, a: Op, b: Op) -> str:
        one = self.printers[0].op(a, unique_names(self.f))
        other = self.printers[1].op(b, unique_names(self.g))
        return _format_difference(f"{self.where}: {what}", str(one), str(other))

    def define_pair(self, p: Value, q: Value) -> bool:
        self.same[p] = q
        same = p.type == q.type and p.sharding == q.sharding
        return same and (not self.names or p.name == q.name)

    def are_same_uses(self, a: Sequence[Value], b: Sequence[Value]) -> bool:
        return len(a) == len(b) and all(self.same.get(v) is w for v, w in zip(a, b, strict=True))


def are_attrs_equal(a: Attr, b: Attr) -> bool:
    """Return whether two attributes have the same type and are bitwise equal."""
    if type(a) is not type(b):
        # The text form stores only the name of a host function.
        return {type(a), type(b)} == {str, HostFunction} and a == b
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(are_attrs_equal, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (a != a and b != b)
    if isinstance(a, complex):
        return are_attrs_equal((a.real, a.imag), (b.real, b.imag))
    return bool(a == b)


def _is_signature_line(line: str) -> bool:
    return not line.startswith("  ") or line.endswith(",")


def _compare_lengths(what: str, a: Sequence[object], b: Sequence[object]) -> Iterator[str]:
    if len(a) != len(b):
        yield f"the number of {what} differs\n  {len(a)}\n  {len(b)}"


def _format_difference(what: str, a: str, b: str) -> str:
    one, other = (text.replace("\n", "\n    ") for text in (a, b))
    return f"{what}\n  {one}\n  {other}"

"""Comparison of a function with the CHECK lines of a test, value by value.

Lines are matched in FileCheck's order: the search for a line starts after the match of the
previous line. A line matches an operation of its name that reads the values bound to the line's
variables. The shardings of the results must then equal those of the line, after normalization.
"""

from dataclasses import dataclass, field, replace
from types import EllipsisType

from shardir.ir.module import Module
from shardir.ir.sharding import Sharding
from shardir.op_rules.factor_rule_text import parse_rule
from tests.shardy.rule_text import loops
from tests.shardy.suite.axis_origins import OriginReport, Origins
from tests.shardy.suite.check_files import Case, Check
from tests.shardy.suite.check_patterns import CheckParser, ExpectedSharding, Statement
from tests.shardy.suite.op_listing import Entry, Listing

SAME_OPERATION = {
    "stablehlo.constant": "constant",
    "sdy.constant": "constant",
    "func.return": "return",
    "stablehlo.return": "return",
    "sdy.return": "return",
    "call": "func.call",
}
BLOCKS = ("stablehlo.case", "stablehlo.if", "stablehlo.sort", "stablehlo.reduce_window",
          "stablehlo.scatter", "stablehlo.select_and_scatter", "stablehlo.all_reduce")  # fmt: skip


@dataclass(frozen=True)
class ComparisonMode:
    """The rules by which shardings are compared.

    `closed`: all shardings are closed, and a replicated value may have no sharding.
    `moved`: constraints have become reshards.
    """

    closed: bool = False
    moved: bool = False


@dataclass
class Matcher:
    module: Module
    listing: Listing
    parser: CheckParser
    mode: ComparisonMode
    bound: dict[str, frozenset[str]] = field(default_factory=dict)
    at: int = 0
    closed: int = 0
    differences: list[str] = field(default_factory=list)
    origin_report: OriginReport | None = None
    edges: bool = False
    """The CHECK lines contain data flow edges, which carry the propagated shardings."""

    def match(self, case: Case) -> list[str]:
        """Return the differences from the CHECK lines, one line each."""
        for number, param in enumerate(self.listing.params):
            self.bound[f"arg{number}"] = frozenset((param.name,))
        label, *others = case.checks
        self.edges = any("sdy.data_flow_edge" in check.text for check in others)
        self.signature(label)
        absent: list[Check] = []
        for check in others:
            if check.word == "NOT":
                absent.append(check)
            else:
                before = self.at
                found = self.line(check)
                self.not_there(absent, before, self.at if found else len(self.listing.entries))
                absent = []
        self.not_there(absent, self.at, len(self.listing.entries))
        return self.differences

    def not_there(self, absent: list[Check], start: int, end: int) -> None:
        """Report operations that a CHECK-NOT line forbids between two matches."""
        for check in absent:
            statement = self.parser.statement(check.text)
            for entry in self.listing.entries[start:end]:
                if statement and _name(entry.operation) == _name(statement.operation):
                    self.differences.append(f"line {check.line}: there is {entry.operation}")
                if check.text == "sdy.sharding_rule" and entry.rule is not None:
                    self.differences.append(f"line {check.line}: {entry.operation} has a rule")

    def signature(self, check: Check) -> None:
        wanted = self.parser.signature(check.text)
        for number, expected in wanted.params.items():
            if number < len(self.listing.params):
                found = self.listing.params[number].sharding
                self.compare(f"argument {number}", expected, found)
        for number, expected in wanted.results.items():
            if number < len(self.listing.function.result_shardings):
                self.compare(
                    f"result {number}", expected, self.listing.function.result_shardings[number]
                )

        if self.origin_report:
            for number, origins in wanted.param_origins.items():
                reported = self.origin_report.of_value(self.listing.params[number].name)
                self.origins(f"argument {number}", origins, reported)
            # A line may omit results in the middle; its last entry describes the last result.
            missing = len(self.listing.function.result_shardings) - len(wanted.results)
            last = max(wanted.results, default=-1)
            for number, origins in wanted.result_origins.items():
                if number == last and missing > 0:
                    number += missing
                self.origins(f"result {number}", origins, self.origin_report.of_result(number))

    def origins(self, what: str, expected: dict[str, str], found: Origins) -> None:
        """Compare the origins of each axis with the expected ones.

        The sub-axes of an axis are combined, because Shardy lists sub-axes that were once split.
        """
        want: Origins = {}
        have: Origins = {}
        for axis, name in expected.items():
            want.setdefault(axis.partition(":")[0], set()).add(name)
        for axis, names in found.items():
            have.setdefault(axis.partition(":")[0], set()).update(names)
        if have != want:
            reported = {axis: "/".join(sorted(names)) for axis, names in found.items()}
            self.differences.append(f"{what}: axes from {reported}, wanted {expected}")

    def line(self, check: Check) -> bool:
        """Compare the operation that a line matches, and return whether one matches."""
        closing = self.parser.closes(check.text)
        if closing is not None:
            self.close(check, closing)
            return True
        statement = self.parser.statement(check.text)
        if statement is None or _name(statement.operation) == "return":
            return True
        if self.mode.moved and statement.operation == "sdy.all_reduce":
            # A later pass reduces unreduced values; propagation treats both as the same value.
            read = frozenset[str]().union(*(self.bound.get(r, ()) for r in statement.reads))
            self.bound.update(dict.fromkeys(statement.defines, read))
            return True
        entry = self.find(statement, check)
        if entry is None and statement.operation == "sdy.func_data_flow_edge":
            return self.edge(statement, check)
        if entry is None:
            reads = ", ".join(statement.reads)
            self.differences.append(f"line {check.line}: no {statement.operation}({reads})")
            return False
        for name in statement.defines:
            self.bound[name] = frozenset(entry.makes)
        made = " ".join(f"%{name}" for name in entry.makes)
        self.entry(f"line {check.line}: {made or entry.operation}", statement, entry)
        return True

    def edge(self, statement: Statement, check: Check) -> bool:
        """Compare the data flow edge of a function with the value that it reads."""
        read = frozenset[str]().union(*(self.bound.get(r, ()) for r in statement.reads))
        self.bound.update(dict.fromkeys(statement.defines, read))
        known = {value.name: value.sharding for value in self.listing.params}
        for entry in self.listing.entries:
            known.update(zip(entry.makes, entry.shardings, strict=False))
        expected = statement.shardings
        for name in sorted(read):
            if isinstance(expected, tuple) and name in known:
                self.compare(f"line {check.line}: %{name}", expected[0], known[name])
        return True

    def entry(self, what: str, statement: Statement, entry: Entry) -> None:
        flows = self.edges and entry.op is not None and entry.op.blocks
        for word, wanted, found in (
            ("", ... if flows else statement.shardings, entry.shardings),
            (" in", ... if self.edges else statement.ins, entry.ins),
            (" out", ... if self.edges else statement.outs, entry.shardings),
        ):
            if wanted is None:
                wanted = (None,) * len(found)
            if isinstance(wanted, EllipsisType) or not found:
                continue  # an operation without results has no shardings to compare
            if len(wanted) != len(found):
                self.differences.append(f"{what}: {len(wanted)} shardings, found {len(found)}")
                continue
            for i, (expected, sharding) in enumerate(zip(wanted, found, strict=True)):
                if not word:
                    self.compare(f"{what} {i}", expected, sharding)
                    continue
                have = _without_idle(sharding, entry)
                self.compare(f"{what}{word} {i}", _without_idle(expected, entry), have)
        for name, origins in zip(entry.makes, statement.origins, strict=False):
            if self.origin_report:
                self.origins(f"{what}: %{name}", origins, self.origin_report.of_value(name))
        if isinstance(statement.rule, str):
            self.rule(what, statement.rule, entry)

    def rule(self, what: str, expected: str, entry: Entry) -> None:
        rule = parse_rule(expected)
        if entry.rule is None or loops(entry.rule) != loops(rule):
            self.differences.append(f"{what}: rule {entry.rule}, wanted {rule}")

    def find(self, statement: Statement, check: Check) -> Entry | None:
        """Return the operation that a line matches, and continue the search after it.

        Where the line is no CHECK-NEXT, an operation with the expected shardings has priority.
        """
        fitting = [i for i in range(self.at, len(self.listing.entries))
                   if self.fits(statement, self.listing.entries[i])]  # fmt: skip
        if not fitting:
            return None
        chosen = fitting[0]
        if check.word != "NEXT" or self.listing.is_dead(self.listing.entries[chosen]):
            chosen = next((i for i in fitting if self.is_right(statement, i)), chosen)
        if check.word != "DAG":
            self.at = chosen + 1
        return self.listing.entries[chosen]

    def is_right(self, statement: Statement, number: int) -> bool:
        trial = replace(self, differences=[])
        trial.entry("", statement, self.listing.entries[number])
        return not trial.differences

    def fits(self, statement: Statement, entry: Entry) -> bool:
        name = _name(statement.operation)
        same = _name(entry.operation) == name or (
            statement.text.endswith(name) and entry.operation.startswith(name)
        )
        if name and not same and not (
            self.mode.moved
            and (name, entry.operation) == ("sdy.reshard", "sdy.sharding_constraint")
        ):  # fmt: skip
            return False
        if not name and entry.rule is None:
            return False
        return all(
            self.bound[read] & entry.reads
            for read in statement.reads
            if self.bound.get(read) and entry.reads
        )

    def close(self, check: Check, expected: tuple[ExpectedSharding, ...]) -> None:
        """Compare the shardings in the attributes that follow the regions of an operation."""
        tried = []
        for number, entry in enumerate(self.listing.entries):
            if _name(entry.operation) not in BLOCKS or number < self.closed:
                continue
            trial = replace(self, differences=[])
            trial.entry(f"line {check.line}: %{' %'.join(entry.makes)}",
                        Statement(entry.operation, (), (), expected), entry)  # fmt: skip
            if not trial.differences:
                return
            tried += trial.differences
        self.differences += tried or [f"line {check.line}: no operation with blocks"]

    def compare(self, what: str, expected: ExpectedSharding, found: ExpectedSharding) -> None:
        if isinstance(expected, EllipsisType) or isinstance(found, EllipsisType):
            return
        wanted, have = self.meaning(expected), self.meaning(found)
        if wanted != have:
            self.differences.append(f"{what}: {_text(have)}, wanted {_text(wanted)}")

    def meaning(self, sharding: Sharding | None) -> Sharding | None:
        """Return the normalized form of a sharding, in which shardings are compared."""
        if sharding is None:
            return None
        mine = self.parser.reader.shardings.meshes[sharding.mesh]
        equal = (m for m in self.module.meshes if replace(m, name=mine.name) == mine)
        sharding = replace(sharding, mesh=next(equal).name)
        if self.parser.reader.shardings.meshes[sharding.mesh].is_maximal:
            return replace(sharding, dims=())
        if sharding == Sharding.open(sharding.mesh, len(sharding.dims)):
            return None
        if self.mode.closed and not (any(sharding.axes) or sharding.unreduced):
            return None
        return sharding


def _without_idle(expected: ExpectedSharding, entry: Entry) -> ExpectedSharding:
    """Remove the manual axes from the explicitly replicated axes of a sharding, and those of size 1
    from its dimensions: they are attributes of the computation, and shard nothing.
    """
    manual = {axis.name for axis in entry.op.attrs["axes"]} if entry.op else set()
    if not isinstance(expected, Sharding):
        return expected
    kept = tuple(axis for axis in expected.replicated if axis.name not in manual)
    dims = tuple(
        replace(dim, axes=tuple(a for a in dim.axes if a.size > 1 or a.name not in manual))
        for dim in expected.dims
    )
    return replace(expected, dims=dims, replicated=kept)


def _name(operation: str) -> str:
    return SAME_OPERATION.get(operation, operation)


def _text(sharding: Sharding | None) -> str:
    if sharding is None:
        return "nothing"
    dims = ", ".join(
        "{"
        + ",".join([*map(str, dim.axes), *(["?"] if dim.open else [])])
        + "}"
        + (f"p{dim.priority}" if dim.priority is not None else "")
        for dim in sharding.dims
    )
    marks = "".join(
        f" {word}({', '.join(map(str, axes))})"
        for word, axes in (("replicated", sharding.replicated), ("unreduced", sharding.unreduced))
        if axes
    )
    return f"@{sharding.mesh}[{dims}]{marks}"

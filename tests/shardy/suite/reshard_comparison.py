"""Comparison of reshards: our passes insert one `reshard` where Shardy may need several steps.

A chain of `sdy.all_reduce`, `sdy.reshard` and conversions to unreduced values counts as one
reshard, to the sharding of its last line. Each expected reshard must match one of ours, and each
of ours an expected one; the results of other operations must have the shardings of their lines.
"""

import re
from dataclasses import dataclass, field, replace

from shardir.ir.builder import substitute
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.sharding import Sharding
from tests.shardy.suite.check_files import Case, Check
from tests.shardy.suite.check_matching import Matcher
from tests.shardy.suite.check_patterns import ExpectedSharding, Statement
from tests.shardy.suite.op_listing import Entry

MOVES = (
    "sdy.reshard", "sdy.all_reduce", "sdy.replicated_to_unreduced", "sdy.sharded_to_unreduced"
)  # fmt: skip
_PARAM = re.compile(r"%\[\[(\w+):[^\]]*\]\]:")
_MADE = re.compile(r"(.*)\.(?:partial|before_reshard)(?:\.\d+)?")


def with_names_kept(module: Module) -> Module:
    """Give results of operations the names of the text, and results of reshards other names."""
    return replace(module, functions=tuple(map(_function, module.functions)))


def _function(function: Function) -> Function:
    new: dict[Value, Value] = {}
    for op in _walk(function.body):
        if op.name == "reshard" and (match := _MADE.fullmatch(op.operands[0].name)):
            made, moved = op.operands[0], op.result
            if moved.name == match[1]:
                new[made] = replace(made, name=moved.name)
                new[moved] = replace(moved, name=f"{moved.name}.moved")
    return replace(function, body=substitute(function.body, new))


def _walk(block: Block) -> list[Op]:
    return [each for op in block.ops
            for each in (op, *(o for inner in op.blocks for o in _walk(inner)))]  # fmt: skip


@dataclass
class ReshardMatcher(Matcher):
    passed: set[str] = field(default_factory=set)
    """Variables that a further reshard reads, so that they are intermediate shardings."""
    used: set[tuple[str, ...]] = field(default_factory=set)
    """Our reshards that matched an expected one."""

    def match(self, case: Case) -> list[str]:
        case = replace(case, checks=[
            check._replace(text=_captured(check.text)) if i else check
            for i, check in enumerate(case.checks)
        ])  # fmt: skip
        for check in case.checks[1:]:
            statement = self.parser.statement(check.text)
            if statement is not None and statement.operation in MOVES:
                self.passed.update(statement.reads)
        self.listing.entries = [
            replace(entry, operation="ours.reshard") if _moves(entry) else entry
            for entry in self.listing.entries
        ]
        wrong = super().match(case)
        complete = all(check.word == "NEXT" for check in case.checks[2:])
        complete = complete and "return" in case.checks[-1].text
        for entry in self.listing.entries:
            if complete and _moves(entry) and entry.makes not in self.used:
                wrong.append(f"moves %{entry.makes[0]}, which is not wanted")
        return wrong

    def line(self, check: Check) -> bool:
        statement = self.parser.statement(check.text)
        if statement is None or statement.operation not in MOVES:
            return super().line(check)
        source = frozenset[str]().union(
            *(self.bound.get(r, {r}) for r in statement.reads if r[0] != "_" or r in self.bound)
        )
        found = [entry for entry in self.listing.entries
                 if _moves(entry) and (entry.reads & source or not source)]  # fmt: skip
        makes = (name for entry in found for name in entry.makes)
        for name in statement.defines:
            self.bound[name] = source.union(makes)
        on_the_way = bool(self.passed.intersection(statement.defines))
        if not on_the_way or statement.operation == "sdy.reshard":
            before = len(self.differences)
            self.move(f"line {check.line}: %{' %'.join(sorted(source))}", statement, found)
            if on_the_way:
                del self.differences[before:]
        return True

    def move(self, what: str, statement: Statement, found: list[Entry]) -> None:
        wanted = statement.shardings
        expected: ExpectedSharding = wanted[0] if isinstance(wanted, tuple) else ...
        fitting = [
            entry
            for entry in found
            if entry.makes not in self.used
            and (expected is ... or self.cuts(entry.shardings[0]) == self.cuts(expected))
        ]
        if fitting:
            self.used.add(fitting[0].makes)
        else:
            self.differences.append(f"{what} is not moved to {self.cuts(expected)}")

    def cuts(self, expected: ExpectedSharding) -> ExpectedSharding:
        """Return the sharded and unreduced axes, without explicit replication."""
        if not isinstance(expected, Sharding):
            return expected
        return self.meaning(replace(expected.close(), replicated=()))

    def compare(self, what: str, expected: ExpectedSharding, found: ExpectedSharding) -> None:
        """Compare shardings without unreduced axes, which the following reshard states."""
        if isinstance(expected, Sharding) and isinstance(found, Sharding):
            expected = replace(expected, replicated=())
            found = replace(found, unreduced=expected.unreduced, reduction=expected.reduction,
                            replicated=())  # fmt: skip
        if expected is None and isinstance(found, Sharding):
            found = replace(found, unreduced=(), reduction="add")
        super().compare(what, expected, found)

    def signature(self, check: Check) -> None:
        """Bind the variables of parameters, whose shardings the pass does not change."""
        for number, name in enumerate(_PARAM.findall(check.text)):
            if number < len(self.listing.params):
                self.bound[name] = frozenset((self.listing.params[number].name,))


def _captured(text: str) -> str:
    """Rewrite the literal value names of a line as captured FileCheck variables."""
    text = re.sub(r"^%(\d+)(:\d+)? = ", r"%[[_\1:.*]]\2 = ", text)
    return re.sub(r"%(\d+)\b", r"%[[_\1]]", text)


def _moves(entry: Entry) -> bool:
    return entry.op is not None and entry.op.name == "reshard"

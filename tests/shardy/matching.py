"""Whether a function is what the CHECK lines want, value by value.

Lines are followed as FileCheck does: each is looked for behind the one before it. A line finds an
operation of its name that reads the values its variables stand for; then the shardings of its
results must be those of the line. Shardings are compared as what they mean.
"""

from dataclasses import dataclass, field, replace
from types import EllipsisType

from shardir.ir.module import Module
from shardir.ir.sharding import Sharding
from shardir.op_rules.factor_rule_text import parse_rule
from tests.shardy.checks import Case, Check
from tests.shardy.listing import Entry, Listing
from tests.shardy.origins import Origins, Teller
from tests.shardy.rule_text import loops
from tests.shardy.wanted import Statement, Wish, Wishes

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
class Manner:
    """How shardings are compared.

    `closed`: everything is closed, and what is not cut at all may as well say nothing.
    `moved`: constraints have become reshards.
    """

    closed: bool = False
    moved: bool = False


@dataclass
class Matcher:
    module: Module
    listing: Listing
    wishes: Wishes
    manner: Manner
    bound: dict[str, frozenset[str]] = field(default_factory=dict)
    at: int = 0
    closed: int = 0
    wrong: list[str] = field(default_factory=list)
    teller: Teller | None = None
    edges: bool = False
    """Whether operations stand behind the edges, and what is found out is written there."""

    def match(self, case: Case) -> list[str]:
        """What is not as wanted, one line each."""
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
        return self.wrong

    def not_there(self, absent: list[Check], start: int, end: int) -> None:
        """What must not stand between two lines."""
        for check in absent:
            statement = self.wishes.statement(check.text)
            for entry in self.listing.entries[start:end]:
                if statement and _name(entry.operation) == _name(statement.operation):
                    self.wrong.append(f"line {check.line}: there is {entry.operation}")
                if check.text == "sdy.sharding_rule" and entry.rule is not None:
                    self.wrong.append(f"line {check.line}: {entry.operation} has a rule")

    def signature(self, check: Check) -> None:
        wanted = self.wishes.signature(check.text)
        for number, wish in wanted.params.items():
            if number < len(self.listing.params):
                found = self.listing.params[number].sharding
                self.compare(f"argument {number}", wish, found)
        for number, wish in wanted.results.items():
            if number < len(self.listing.function.result_shardings):
                self.compare(
                    f"result {number}", wish, self.listing.function.result_shardings[number]
                )

        if self.teller:
            for number, origins in wanted.param_origins.items():
                told = self.teller.of_value(self.listing.params[number].name)
                self.origins(f"argument {number}", origins, told)
            # Lines may leave out results between, and end with what is said of the last.
            missing = len(self.listing.function.result_shardings) - len(wanted.results)
            last = max(wanted.results, default=-1)
            for number, origins in wanted.result_origins.items():
                if number == last and missing > 0:
                    number += missing
                self.origins(f"result {number}", origins, self.teller.of_result(number))

    def origins(self, what: str, wanted: dict[str, str], found: Origins) -> None:
        """Each axis came from where it should have come from, and from nowhere else.

        Parts of an axis count together: Shardy lists those that were once split.
        """
        want: Origins = {}
        have: Origins = {}
        for axis, name in wanted.items():
            want.setdefault(axis.partition(":")[0], set()).add(name)
        for axis, names in found.items():
            have.setdefault(axis.partition(":")[0], set()).update(names)
        if have != want:
            told = {axis: "/".join(sorted(names)) for axis, names in found.items()}
            self.wrong.append(f"{what}: axes from {told}, wanted {wanted}")

    def line(self, check: Check) -> bool:
        """Compare what a line is about; whether that was found at all."""
        closing = self.wishes.closes(check.text)
        if closing is not None:
            self.close(check, closing)
            return True
        statement = self.wishes.statement(check.text)
        if statement is None or _name(statement.operation) == "return":
            return True
        if self.manner.moved and statement.operation == "sdy.all_reduce":
            # What is pending is reduced by a later pass; to propagation it is the same value.
            read = frozenset[str]().union(*(self.bound.get(r, ()) for r in statement.reads))
            self.bound.update(dict.fromkeys(statement.defines, read))
            return True
        entry = self.find(statement, check)
        if entry is None and statement.operation == "sdy.func_data_flow_edge":
            return self.edge(statement, check)
        if entry is None:
            reads = ", ".join(statement.reads)
            self.wrong.append(f"line {check.line}: no {statement.operation}({reads})")
            return False
        for name in statement.defines:
            self.bound[name] = frozenset(entry.makes)
        made = " ".join(f"%{name}" for name in entry.makes)
        self.entry(f"line {check.line}: {made or entry.operation}", statement, entry)
        return True

    def edge(self, statement: Statement, check: Check) -> bool:
        """The edge of a function is the value that it stands behind."""
        read = frozenset[str]().union(*(self.bound.get(r, ()) for r in statement.reads))
        self.bound.update(dict.fromkeys(statement.defines, read))
        known = {value.name: value.sharding for value in self.listing.params}
        for entry in self.listing.entries:
            known.update(zip(entry.makes, entry.shardings, strict=False))
        wanted = statement.shardings
        for name in sorted(read):
            if isinstance(wanted, tuple) and name in known:
                self.compare(f"line {check.line}: %{name}", wanted[0], known[name])
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
                continue  # what has no results keeps its text
            if len(wanted) != len(found):
                self.wrong.append(f"{what}: {len(wanted)} shardings, found {len(found)}")
                continue
            for i, (wish, sharding) in enumerate(zip(wanted, found, strict=True)):
                if not word:
                    self.compare(f"{what} {i}", wish, sharding)
                    continue
                have = _without_idle(sharding, entry)
                self.compare(f"{what}{word} {i}", _without_idle(wish, entry), have)
        for name, origins in zip(entry.makes, statement.origins, strict=False):
            if self.teller:
                self.origins(f"{what}: %{name}", origins, self.teller.of_value(name))
        if isinstance(statement.rule, str):
            self.rule(what, statement.rule, entry)

    def rule(self, what: str, wanted: str, entry: Entry) -> None:
        rule = parse_rule(wanted)
        if entry.rule is None or loops(entry.rule) != loops(rule):
            self.wrong.append(f"{what}: rule {entry.rule}, wanted {rule}")

    def find(self, statement: Statement, check: Check) -> Entry | None:
        """The operation that a line is about; behind it the search goes on.

        A line that need not follow at once means any operation that is as wanted.
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
        trial = replace(self, wrong=[])
        trial.entry("", statement, self.listing.entries[number])
        return not trial.wrong

    def fits(self, statement: Statement, entry: Entry) -> bool:
        name = _name(statement.operation)
        same = _name(entry.operation) == name or (
            statement.text.endswith(name) and entry.operation.startswith(name)
        )
        if name and not same and not (
            self.manner.moved
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

    def close(self, check: Check, wanted: tuple[Wish, ...]) -> None:
        """The shardings that stand behind the blocks of an operation."""
        tried = []
        for number, entry in enumerate(self.listing.entries):
            if _name(entry.operation) not in BLOCKS or number < self.closed:
                continue
            trial = replace(self, wrong=[])
            trial.entry(f"line {check.line}: %{' %'.join(entry.makes)}",
                        Statement(entry.operation, (), (), wanted), entry)  # fmt: skip
            if not trial.wrong:
                return
            tried += trial.wrong
        self.wrong += tried or [f"line {check.line}: no operation with blocks"]

    def compare(self, what: str, wish: Wish, found: Wish) -> None:
        if isinstance(wish, EllipsisType) or isinstance(found, EllipsisType):
            return
        wanted, have = self.meaning(wish), self.meaning(found)
        if wanted != have:
            self.wrong.append(f"{what}: {_text(have)}, wanted {_text(wanted)}")

    def meaning(self, sharding: Sharding | None) -> Sharding | None:
        """A sharding as it is compared."""
        if sharding is None:
            return None
        mine = self.wishes.reader.shardings.meshes[sharding.mesh]
        equal = (m for m in self.module.meshes if replace(m, name=mine.name) == mine)
        sharding = replace(sharding, mesh=next(equal).name)
        if self.wishes.reader.shardings.meshes[sharding.mesh].is_maximal:
            return replace(sharding, dims=())
        if sharding == Sharding.open(sharding.mesh, len(sharding.dims)):
            return None
        if self.manner.closed and not (any(sharding.axes) or sharding.unreduced):
            return None
        return sharding


def _without_idle(wish: Wish, entry: Entry) -> Wish:
    """A sharding of a whole tensor; that a manual axis does not cut it need not be said."""
    manual = {axis.name for axis in entry.op.attrs["axes"]} if entry.op else set()
    if not isinstance(wish, Sharding):
        return wish
    kept = tuple(axis for axis in wish.replicated if axis.name not in manual)
    return replace(wish, replicated=kept)


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

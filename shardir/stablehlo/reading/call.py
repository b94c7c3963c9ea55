"""One operation while it is being read, independent of its textual form.

`OperationReader` sorts the parts of the text, whatever their order and form. The rules in
`reading.rules` and beside it obtain operands, attributes and types from it, and emit the IR
operations through it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from lark import Token

from shardir.errors import OperationTypeError, ParseError, count_noun
from shardir.ir.builder import infer_types
from shardir.ir.module import Block, Value
from shardir.ir.operation import OPS, Attr
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.function_state import FunctionState
from shardir.stablehlo.reading.types import TypeParser

SHARDING = "sdy.sharding"
UNUSED_NAME = "%unused"
"""The name of results that the text does not name."""
OPERATIONS_WITHOUT_RESULTS = (
    "return",
    "func.return",
    "stablehlo.return",
    "sdy.return",
    "sdy.sharding_group",
)


class UnsupportedOperation(Exception):
    """An operation without a counterpart; the message is the reason."""


class OperationReader:
    """The parts of an operation; with `operands=False`, its operands are not resolved."""

    def __init__(
        self, reader: FunctionState, written: records.OpRecord, *, operands: bool = True
    ) -> None:
        self.reader, self.written = reader, written
        self._with_operands = operands
        self.stated_shardings: list[Sharding | None] | None = None
        """The shardings of the results, if they are stated in attributes of the operation itself.
        """
        self.types: TypeParser = reader.types
        self.at = written.name
        quoted = written.name.type == "STRING"
        self.name = self.types.string(written.name) if quoted else str(written.name)
        self.operands: list[Value] = []
        self.attrs: dict[str, Any] = {}
        self.words: list[Token] = []
        self.literals: list[Any] = []
        self.pairs: list[tuple[Token, Value]] = []
        self.params: list[list[records.TypedValueRecord]] = []
        self.blocks: list[records.BlockRecord] = []
        self.symbol: Token | None = None
        for part in written.parts:
            self._take(part)
        for tail in written.tails:
            for part in tail.parts:
                self._take(part)

    def _take(self, part: Any) -> None:
        kind = type(part)
        if kind is Token:
            if part.type == "VALUE":
                if self._with_operands:
                    self.operands.append(self.reader.use(part))
            elif part.type == "NAME":
                self.words.append(part)
            elif part.type == "SYMBOL":
                self.symbol = part
            else:
                self.literals.append(part)
        elif kind is records.AttributeRecord:
            self._attribute(part)
        elif kind is records.PropertiesRecord:
            self._take(part.dict)
        elif kind is records.DictRecord:
            for entry in part.entries:
                if isinstance(entry, records.AttributeRecord):
                    self._attribute(entry)
            self.literals.append(part)
        elif kind is records.RegionsRecord:
            self.blocks += part.blocks
        elif kind is records.BlockRecord:
            self.blocks.append(part)
        elif kind is records.GroupRecord:
            self._group(part)
        else:
            self.literals.append(part)

    def _group(self, group: records.GroupRecord) -> None:
        typed = [member for member in group.members if isinstance(member, records.TypedValueRecord)]
        if typed or not group.members:
            self.params.append(typed)
        for member in group.members:
            if isinstance(member, records.PairRecord):
                self.pairs.append((member.first, self.reader.use(member.second)))
            elif not isinstance(member, records.TypedValueRecord):
                self._take(member)

    def _attribute(self, entry: records.AttributeRecord) -> None:
        key = self.types.string(entry.key)
        if key in self.attrs:
            raise self.fail(f"attribute {key!r} is given twice", entry.key)
        self.attrs[key] = entry.value

    # Contents of the text

    def fail(self, message: str, at: Token | None = None) -> ParseError:
        return self.reader.source.fail(message, self.at if at is None else at)

    def has(self, *names: str) -> bool:
        return any(name in self.attrs for name in names)

    def attr(self, *names: str) -> Any:
        """Return the attribute that has one of the names of the two forms."""
        for name in names:
            if name in self.attrs:
                return self.attrs[name]
        raise self.fail(f"{self.name} lacks its attribute {names[0]!r}")

    def integer(self, *names: str, default: int | None = None) -> int:
        if default is not None and not self.has(*names):
            return default
        return self.types.integer(self.attr(*names))

    def integers(self, *names: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        if default is not None and not self.has(*names):
            return default
        return self.types.integers(self.attr(*names))

    def dimension(self, x: TensorType, *names: str) -> int:
        """Return an attribute that is a dimension of `x`."""
        return self._check_dimensions(x, (self.integer(*names),))[0]

    def dimensions(self, x: TensorType, *names: str) -> tuple[int, ...]:
        """Return an attribute that lists different dimensions of `x`."""
        return self._check_dimensions(x, self.integers(*names))

    def _check_dimensions(self, x: TensorType, dims: tuple[int, ...]) -> tuple[int, ...]:
        for i, dim in enumerate(dims):
            if not 0 <= dim < x.rank:
                raise self.fail(f"{x} has no dimension {dim}")
            if dim in dims[:i]:
                raise self.fail(f"{self.name} lists dimension {dim} twice")
        return dims

    def pairs_of(self, name: str, default: tuple[tuple[int, int], ...]
                 ) -> tuple[tuple[int, int], ...]:  # fmt: skip
        return self.types.pairs(self.attr(name)) if self.has(name) else default

    def word(self, *names: str) -> str:
        """Return an enum value such as `LT`, or of `#stablehlo<comparison_direction LT>`."""
        if self.has(*names):
            match = re.search(r"(\w+)>?$", str(self.attr(*names)))
        else:
            match = re.search(r"(\w+)$", str(self.words[0])) if self.words else None
        if match is None:
            raise self.fail(f"{self.name} lacks its attribute {names[0]!r}")
        return match[1]

    def struct(self, name: str, *fields: str) -> list[tuple[int, ...]]:
        """Return the lists of `#stablehlo.gather<offset_dims = [1], ...>`; the default is empty."""
        text = str(self.attr(name))
        lists = []
        for field in fields:
            match = re.search(rf"\b{field}\s*=\s*(\[[\d\s,]*\]|\d+)", text)
            words = re.findall(r"\d+", match[1]) if match else []
            if any(len(word) > 9 for word in words):
                raise self.fail(f"the numbers of {field!r} are too large")
            lists.append(tuple(map(int, words)))
        return lists

    def take_operands(self, count: int) -> list[Value]:
        """Return the operands after checking their number."""
        if len(self.operands) != count:
            raise self.fail(
                f"{self.name} takes {count_noun(count, 'operand')}, got {len(self.operands)}"
            )
        return self.operands

    @cached_property
    def results(self) -> list[TensorType]:
        """The stated types of the results."""
        signature, names = self.written.signature, self.names
        if signature is None:
            if names:
                raise self.fail(f"{self.name} does not state the type of its result")
            return []
        stated = signature.results
        if signature.operands is None:  # In a single list the last types are the results.
            stated = stated[max(len(stated) - len(names), 0) :]
        if len(stated) != len(names):
            raise self.fail(
                f"{self.name} names {count_noun(len(names), 'result')}, "
                f"but states {count_noun(len(stated), 'type')}"
            )
        return [self.types.type(token) for token in stated]

    @property
    def result(self) -> TensorType:
        """The stated type of the only result."""
        if len(self.results) != 1:
            raise self.fail(f"{self.name} has 1 result, not {len(self.results)}")
        return self.results[0]

    @cached_property
    def names(self) -> list[str]:
        """The name of each result in the text."""
        names: list[str] = []
        signature = self.written.signature
        if (
            not self.written.results
            and signature is not None
            and self.name not in OPERATIONS_WITHOUT_RESULTS
        ):
            # Unused results need no names.
            is_supported = self.name in READERS or self.name in CALLEES
            count = len(signature.results) if signature.operands is not None else int(is_supported)
            return [UNUSED_NAME] * count
        for result in self.written.results:
            name = str(result.name)
            count = 1 if result.number is None else self.types.integer(result.number)
            if count > 10_000:
                raise self.fail("these are too many results", result.number)
            names += [name] if result.number is None else [f"{name}#{i}" for i in range(count)]
        return names

    @cached_property
    def shardings(self) -> list[Sharding | None]:
        """The stated sharding of each result."""
        if self.stated_shardings is not None:
            return self.stated_shardings
        attribute = self.attrs.get(SHARDING)
        states_one = self.name in ("sdy.sharding_constraint", "sdy.reshard")
        if states_one:
            angles = [part for part in self.literals if getattr(part, "type", "") == "ANGLE"]
            attribute = self.attrs.get("sharding", angles[0] if angles else None)
        if not isinstance(attribute, Token):
            return [None] * len(self.names)
        if attribute.startswith("#sdy.sharding_per_value"):
            if self.names:
                return list(self.reader.shardings.per_value(attribute, self.results))
            self.reader.shardings.check_of_no_results(attribute)
            return []
        if attribute.startswith("#sdy.sharding") and not states_one:
            raise self.fail(
                "an operation states the shardings of all its results; write "
                f"#sdy.sharding_per_value<[{attribute.removeprefix('#sdy.sharding')}]>",
                attribute,
            )
        return [self.reader.shardings.sharding(attribute, self.result)]

    def check_operands(self) -> None:
        """Check the stated types of the operands."""
        signature = self.written.signature
        if signature is None or signature.operands is None:
            return
        if len(signature.operands) != len(self.all_operands):
            return
        for token, value in zip(signature.operands, self.all_operands, strict=True):
            if self.types.type(token) != value.type:
                raise self.fail(f"this operand is %{value.name} of type {value.type}", token)

    @property
    def all_operands(self) -> list[Value]:
        """The operands, followed by the initial values of pairs (in the pretty form of loops)."""
        return [*self.operands, *(value for _, value in self.pairs)]

    # IR operations

    def emit(
        self, name: str, *operands: Value, blocks: tuple[Block, ...] = (), **attrs: Attr
    ) -> tuple[Value, ...]:
        """Emit the IR operation of this one, which gets the names and the shardings."""
        result_types = self.infer(name, operands, tuple(self.results), blocks, attrs)
        if len(result_types) != len(self.results):
            many = count_noun(len(result_types), "result")
            raise self.fail(f"{self.name} has {many}, not {len(self.results)}")
        for i, (type, stated) in enumerate(zip(result_types, self.results, strict=True)):
            if type != stated:
                raise self.fail(f"the result of {self.name} is {type}, not {stated}",
                                self._result_token(i))  # fmt: skip
        values = self.define(result_types)
        self.reader.append(name, operands, values, attrs, blocks, self.written.loc)
        return values

    def define(
        self, types: Iterable[TensorType], shardings: Sequence[Sharding | None] | None = None
    ) -> tuple[Value, ...]:
        """Return values for the results, with their names, and their stated shardings by
        default."""
        shardings = self.shardings if shardings is None else shardings
        return tuple(
            Value(type, self.reader.fresh(name), sharding)
            for type, name, sharding in zip(types, self.names, shardings, strict=True)
        )

    def emit_step(
        self, name: str, *operands: Value, result: TensorType | None = None, name_hint: str = "",
        **attrs: Attr,
    ) -> Value:  # fmt: skip
        """Emit an intermediate operation, whose result is not a value of the text."""
        if self.reader.module.keep_opaque:
            raise UnsupportedOperation("it corresponds to several operations")
        (type,) = self.infer(name, operands, (result,) if result else (), (), attrs)
        value = Value(type, self.reader.names.fresh(name_hint or self.derive_name(name)))
        self.reader.append(name, operands, (value,), attrs, (), self.written.loc)
        return value

    def derive_name(self, name: str) -> str:
        """Return a name for an intermediate result, derived from the final result."""
        first = (*self.names, UNUSED_NAME)[0][1:].partition("#")[0]
        return f"{'v' if first[0].isdigit() else ''}{first}.{name}"

    def infer(
        self,
        name: str,
        operands: tuple[Value, ...],
        stated: tuple[TensorType, ...],
        blocks: tuple[Block, ...],
        attrs: dict[str, Attr],
    ) -> tuple[TensorType, ...]:
        """Return the inferred result types; raise `UnsupportedOperation` if the type rule rejects
        the operation.
        """
        result = stated[0] if len(stated) == 1 else stated or None
        try:
            result_types = infer_types(OPS[name], operands, result, attrs, blocks)
        except OperationTypeError as error:
            raise UnsupportedOperation(str(error)) from None
        return result_types

    def _result_token(self, number: int) -> Token:
        signature = self.written.signature
        assert signature is not None
        return signature.results[len(signature.results) - len(self.names) + number]


def _callee(call: OperationReader) -> Token:
    symbol: Token = call.symbol or call.attr("callee")
    return symbol


def _decomposition(call: OperationReader) -> Token:
    symbol: Token = call.attr("decomposition")
    return symbol


CALLEES: dict[str, Callable[[OperationReader], Token]] = {
    "call": _callee,
    "func.call": _callee,
    "stablehlo.composite": _decomposition,
}
"""The operations that are read as calls, and the function that each of them calls."""

ReadingRule = Callable[[OperationReader], tuple[Value, ...]]
READERS: dict[str, ReadingRule] = {}
"""The reading rule by MLIR operation name; it emits IR operations and returns the results."""


def register_reader(*names: str) -> Callable[[ReadingRule], ReadingRule]:
    """Register the rule for these operations; names without a dialect are StableHLO's."""

    def register(rule: ReadingRule) -> ReadingRule:
        READERS.update((name if "." in name else f"stablehlo.{name}", rule) for name in names)
        return rule

    return register


def rename_results(call: OperationReader, values: Sequence[Value]) -> tuple[Value, ...]:
    """Return the values, which operations of this call define, under the names and shardings of
    its results.

    A value that is an operand, or several results, is copied first: it keeps its own name.
    """
    if [value.type for value in values] != call.results:
        raise call.fail(f"{call.name} makes ({', '.join(str(v.type) for v in values)})")
    named = set(call.all_operands)
    renamed = []
    for value in values:
        new = call.emit_step("reshape", value, result=value.type) if value in named else value
        named.add(new)
        renamed.append(new)
    results = call.define(value.type for value in renamed)
    call.reader.rename(dict(zip(renamed, results, strict=True)))
    return results

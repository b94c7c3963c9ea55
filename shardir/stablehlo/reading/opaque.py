"""Preservation of operations without a counterpart as text.

The text is split at the sharding of the results: head, attributes, types. Captured values become
operands, one per occurrence, so that passes can replace them; in the text a single % marks each
occurrence.
"""

import re

from lark import Token

from shardir.ir.module import Value
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorRule
from shardir.stablehlo.debug_attributes import EDGE_ATTRIBUTES, ORIGIN_ATTRIBUTES
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import SHARDING, OperationReader
from shardir.stablehlo.reading.opaque_rules import SHARDING_RULE_ATTRIBUTE, factor_rule_of

POINTWISE_CALLS = frozenset(
    (
        "Cholesky",
        "CompactWyHelper",
        "InspectSharding",
        "InvertDiagBlocksLowerTriangular",
        "InvertDiagBlocksUpperTriangular",
        "LayoutConstraint",
        "MoveToDevice",
        "MoveToHost",
        "X64SplitHigh",
        "X64SplitLow",
        "_SPMDInternalOp_MultiPad",
        "_SPMDInternalOp_MultiRotate",
        "_SPMDInternalOp_MultiSlice",
        "_SPMDInternalOp_RotateRight",
        "_SPMDInternalOp_Wrap",
        "annotate_device_placement",
        "mhlo.erf",
        "xla.megascale.provide_metadata",
    )
)
"""Custom calls that Shardy treats as pointwise."""

POINTWISE = frozenset(
    f"stablehlo.{name}"
    for name in ("all_reduce", "collective_broadcast", "collective_permute",
                 "cross-replica-sum", "reduce_precision", "round_nearest_afz")
)  # fmt: skip
"""Operations that Shardy treats as elementwise."""

DEVICE_NUMBERS = frozenset(("stablehlo.partition_id", "stablehlo.replica_id"))
"""Operations that only read the number of the device, so that they can be dropped if unused."""

_LINE_BREAKS = re.compile(r"\s*\n\s*")
_REFERENCE = re.compile(
    r'//[^\n]*|"(?:[^"\\]|\\.)*"|%[\w$.-]*(?:#\d+)?|#[\w$.]+(?![\w$.<])|\bloc\('
)


def emit_opaque(call: OperationReader, reason: str) -> tuple[Value, ...]:
    """Emit an opaque operation for a call."""
    written = call.written
    text, signature = call.reader.source.text, written.signature
    if signature is None:
        if call.names:
            raise call.fail(f"{call.name} does not state the type of its result")
        raise call.fail(f"{call.name} is not known, and it does not state its types")
    last = written.parts[-1] if written.parts else None
    dict_ = last if isinstance(last, records.DictRecord) and _has_types_behind(last, call) else None
    start, colon = written.name.start_pos or 0, signature.colon.start_pos or 0
    head_end = colon if dict_ is None else (dict_.open.start_pos or 0)
    collector = _CaptureCollector(call)
    head = collector.text(text[start:head_end])
    attributes = (
        ""
        if dict_ is None
        else collector.text(_attribute_text(text, dict_, has_results=bool(call.names)))
    )
    types = collector.text(text[colon : _end_of_operation(call)])
    target = call.symbol or call.attrs.get("call_target_name")
    name = call.types.string(target) if isinstance(target, Token) else ""
    pointwise = call.name in POINTWISE or (
        call.name == "stablehlo.custom_call" and name in POINTWISE_CALLS
    )
    loops = (
        None
        if pointwise and SHARDING_RULE_ATTRIBUTE not in call.attrs
        else factor_rule_of(call, name, collector.operands)
    )
    attrs = {
        "operation": call.name if call.name != "stablehlo.custom_call" else f"{call.name} @{name}",
        "head": head.strip(),
        "attributes": attributes,
        "types": types.strip(),
        **({"reason": reason} if reason else {}),
        **({"pointwise": True} if pointwise and loops is None else {}),
        **({"rule": str(loops)} if _has_ranks_of(loops, collector.operands, call.results) else {}),
    }
    results = call.define(call.results)
    call.reader.append("opaque", tuple(collector.operands), results, attrs, (), written.loc)
    if call.name in DEVICE_NUMBERS:
        call.reader.mark_removable(*results)
    return results


def _has_ranks_of(
    rule: FactorRule | None, operands: list[Value], results: list[TensorType]
) -> bool:
    """Return whether a rule has the ranks of these tensors."""
    if rule is None:
        return False
    ranks = [len(tensor) for tensor in rule.tensors]
    return ranks == [value.type.rank for value in operands] + [type.rank for type in results]


def _has_types_behind(dict_: records.DictRecord, call: OperationReader) -> bool:
    """Return whether the attributes are directly before the types."""
    close, signature = dict_.close.end_pos or 0, call.written.signature
    assert signature is not None
    return not call.reader.source.text[close : signature.colon.start_pos].strip()


def _attribute_text(text: str, dict_: records.DictRecord, *, has_results: bool) -> str:
    """Return the text of the attributes without the sharding of the results, and without
    propagation edges and origins, which another propagation would make untrue.
    """
    starts = [entry.key.start_pos or 0 for entry in dict_.entries]
    ends = [*starts[1:], dict_.close.start_pos or 0]
    parts = (
        text[start:end].strip().rstrip(",").rstrip()
        for entry, start, end in zip(dict_.entries, starts, ends, strict=True)
        if not (has_results and entry.key.strip('"') == SHARDING)
        and entry.key.strip('"') not in (*EDGE_ATTRIBUTES, *ORIGIN_ATTRIBUTES)
    )
    return ", ".join(parts)


def _end_of_operation(call: OperationReader) -> int:
    """Return the end of the operation in the text: its last type or trailing region."""
    written = call.written
    assert written.signature is not None
    text, signature = call.reader.source.text, written.signature
    if written.tails:
        last = written.tails[-1].parts[-1]
        if last.close.end_pos > signature.colon.start_pos:
            return last.close.end_pos or 0
    if signature.results:
        return _after_match(_CLOSING_PARENTHESIS, text, signature.results[-1].end_pos or 0)
    last = signature.operands[-1] if signature.operands else signature.colon
    return _after_match(_EMPTY_RESULTS, text, last.end_pos or 0)


_CLOSING_PARENTHESIS = re.compile(r"\s*\)")
_EMPTY_RESULTS = re.compile(r"[\s()]*->\s*\(\s*\)")


def _after_match(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


class _CaptureCollector:
    """Extracts the captured values from texts."""

    def __init__(self, call: OperationReader) -> None:
        self.reader = call.reader
        self.operands: list[Value] = []
        self.inner: dict[str, str] = {}

    def text(self, text: str) -> str:
        parts, at = [], 0
        for match in _REFERENCE.finditer(text):
            if match.start() < at:
                continue
            parts.append(text[at : match.start()])
            at = match.end()
            parts.append(self.word(match[0]))
            if match[0] == "loc(":
                at = _after_parenthesis(text, at)
        return _LINE_BREAKS.sub("\n", "".join([*parts, text[at:]]))

    def word(self, word: str) -> str:
        if word == "loc(" or word.startswith("//"):
            return ""
        if word.startswith("#"):
            return self.reader.module.aliases.get(word, word)
        if not word.startswith("%"):
            return word
        values = self.reader.values
        value = values.get(word) or values.get(f"{word}#0")
        if value is None:
            name, mark, number = word.partition("#")
            return self.inner.setdefault(name, f"%o{len(self.inner)}") + mark + number
        self.operands.append(value)
        return "%"


def _after_parenthesis(text: str, at: int) -> int:
    """Return the position after the parenthesis that is open at `at`."""
    depth = 1
    while depth and at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at

"""Parser of the CHECK lines of Shardy's tests.

The parser reads the parts that concern shardings: the name of the operation, its operands and
results (as FileCheck's variables), and the shardings; `...` stands for a sharding that the line
leaves open.
"""

import re
from dataclasses import dataclass, field
from types import EllipsisType

from lark import Token

from shardir.ir.sharding import Sharding
from shardir.stablehlo.reader import ModuleReader

ExpectedSharding = Sharding | EllipsisType | None
"""`None` expects no sharding; `...` accepts any."""

_ATTRIBUTES = "|".join(
    ("block_arg_sharding_origins", "manual_axes", "mesh", "op_sharding_rule", "propagation_edges",
     "result_sharding_origins", "sharding", "sharding_origin_name", "sharding_origins",
     "sharding_per_value", "sharding_rule")
)  # fmt: skip
"""Names of the dialect that are attributes, not operations."""
_OPERATION = re.compile(
    rf'"?(?<![#!])\b((?:stablehlo|sdy|chlo|mhlo)\.(?!(?:{_ATTRIBUTES})\b)[a-z_0-9]+'
    r'|func\.call|call(?= @)|return(?!\w))"?'
)
_DEFINES = re.compile(r"%\[\[(\w+):")
_VALUE = re.compile(r"%\[\[(\w+)\]\]|%(arg\d+)\b")
_PER_VALUE = "#sdy.sharding_per_value<["
_PARAM = re.compile(r"%(?:\[\[(\w+):?[^\]]*\]\]|(arg\d+)):\s*")
_TYPE = re.compile(r"!?[\w.]+(?:<(?:[^<>]|<[^<>]*>)*>)?")
_SHARDING_OPERATIONS = (
    "sdy.sharding_constraint",
    "sdy.reshard",
    "sdy.data_flow_edge",
    "sdy.func_data_flow_edge",
)


@dataclass
class Statement:
    """An operation. `reads` are variables; `shardings` is `...` where the line omits them."""

    operation: str
    defines: tuple[str, ...]
    reads: tuple[str, ...]
    shardings: tuple[ExpectedSharding, ...] | EllipsisType | None = ...
    ins: tuple[ExpectedSharding, ...] | EllipsisType = ...
    outs: tuple[ExpectedSharding, ...] | EllipsisType = ...
    rule: str | EllipsisType | None = ...
    text: str = ""
    origins: tuple[dict[str, str], ...] = ()


@dataclass
class Signature:
    """The shardings of parameters and results by number, and the origins of their axes."""

    params: dict[int, ExpectedSharding] = field(default_factory=dict)
    results: dict[int, ExpectedSharding] = field(default_factory=dict)
    param_origins: dict[int, dict[str, str]] = field(default_factory=dict)
    result_origins: dict[int, dict[str, str]] = field(default_factory=dict)


_ORIGINS = re.compile(r"sdy\.(?:result_)?sharding_origins = (\[[^\]]*\]|\{[^}]*\})")
_ORIGIN = re.compile(r'"?([\w:()]+)"? = "([^"]*)"')


def origins_of(text: str) -> tuple[dict[str, str], ...]:
    """Parse `{a = "self"}`, or a list of such dictionaries, one for each result."""
    match = _ORIGINS.search(text)
    return (
        tuple(dict(_ORIGIN.findall(p)) for p in re.findall(r"\{[^}]*\}", match[1])) if match else ()
    )


class CheckParser:
    """Parser of CHECK lines, with the meshes of the module under test."""

    def __init__(self, reader: ModuleReader) -> None:
        self.reader = reader

    def sharding(self, text: str) -> Sharding:
        return self.reader.shardings.sharding(Token("ANGLE", text, start_pos=0))

    def list_of(self, text: str, at: int) -> tuple[ExpectedSharding, ...]:
        """Parse the list `[<...>, <...>]` at `at`; append `...` if the list is not closed."""
        found: list[ExpectedSharding] = []
        at += 1
        while at < len(text) and text[at] != "]":
            if text[at] == "<":
                end = closing(text, at)
                found.append(self.sharding(text[at:end]))
                at = end
            else:
                at += 1
        return tuple(found) if at < len(text) else (*found, ...)

    def statement(self, text: str) -> Statement | None:
        """Parse the operation in a line; return `None` if there is none."""
        match = _OPERATION.search(text)
        rule = self.rule(text)
        if match is None:
            if rule is ...:
                return None
            return Statement("", (), (), rule=rule, text=text)
        name = "func.call" if match[1] == "call" else match[1]
        head, tail = text[: match.start()], text[match.end() :]
        defines = tuple(_DEFINES.findall(head))
        reads = tuple(a or b for a, b in _VALUE.findall(_operands(tail)))
        made = Statement(name, defines, reads, rule=rule, text=text)
        made.shardings = self.results(name, tail)
        made.ins = self.named(tail, "in_shardings=")
        made.outs = self.named(tail, "out_shardings=")
        made.origins = origins_of(tail)
        return made

    def named(self, text: str, key: str) -> tuple[ExpectedSharding, ...] | EllipsisType:
        at = text.find(key + "[")
        if at < 0:
            return ...
        return self.list_of(text, at + len(key))

    def results(self, name: str, text: str) -> tuple[ExpectedSharding, ...] | EllipsisType | None:
        """Parse the shardings of the results; return `None` if the line excludes shardings."""
        if name in _SHARDING_OPERATIONS:
            at = text.find("<@")
            return (self.sharding(text[at : closing(text, at)]),) if at >= 0 else (
                None if ": " in text else ...)  # fmt: skip
        if "out_sharding=" in text:
            at = text.index("out_sharding=") + len("out_sharding=")
            return (self.sharding(text[at : closing(text, at)]),)
        at = text.find(_PER_VALUE)
        if at >= 0 and "[[" in text[at:]:
            return ...  # a captured attribute: the line does not state the sharding
        if at >= 0:
            return self.list_of(text, at + len(_PER_VALUE) - 1)
        if "sdy.sharding" in text or name == "return":
            return ...
        plain = re.search(r"(?:^|\s|\)|\])\s*:\s*(?:\(|tensor|!|$)|\bdense<", text)
        return None if plain and "attributes" not in text and "{{" not in text else ...

    @staticmethod
    def rule(text: str) -> str | EllipsisType:
        at = text.find("#sdy.op_sharding_rule<")
        return ... if at < 0 else text[at : closing(text, text.index("<", at))]

    def closes(self, text: str) -> tuple[ExpectedSharding, ...] | None:
        """Parse the shardings that follow the regions, `}) {sdy.sharding = ...}`."""
        at = text.find(_PER_VALUE)
        if not text.startswith("})") or at < 0:
            return None
        return self.list_of(text, at + len(_PER_VALUE) - 1)

    def signature(self, text: str) -> Signature:
        """Parse the shardings of parameters and results in a label and its continuations."""
        made = Signature()
        head, arrow, tail = text.rpartition("->") if "->" in text else (text, "", "")
        while "->" in head and "(" not in tail and "tensor" not in tail:
            head, arrow, tail = head.rpartition("->")
        for number, match in enumerate(_PARAM.finditer(head)):
            index = int(match[2][3:]) if match[2] else number
            made.params[index] = self.typed(head, match.end())
            following = _PARAM.search(head, match.end())
            said = origins_of(head[match.end() : following.start() if following else len(head)])
            made.param_origins.update({index: said[0]} if said else {})
        if arrow:
            made.results = dict(enumerate(self.results_of(tail.strip())))
            for number, part in enumerate(split(tail.strip().removeprefix("("))):
                if said := origins_of(part):
                    made.result_origins[number] = said[0]
        return made

    def typed(self, text: str, at: int) -> ExpectedSharding:
        """Parse the sharding of the value whose type begins at `at`."""
        match = _TYPE.match(text, at)
        if match is None:
            return ...
        rest = text[match.end() :].lstrip()
        if rest.startswith("{") and not rest.startswith("{{"):
            inside = rest[: closing(rest, 0)]
            start = inside.find("#sdy.sharding<")
            if start < 0:
                return None
            start += len("#sdy.sharding")
            return self.sharding(inside[start : closing(inside, start)])
        return None if rest.startswith((",", ")")) else ...

    def results_of(self, text: str) -> list[ExpectedSharding]:
        if not text.startswith("("):
            match = _TYPE.match(text)
            rest = text[match.end() :].strip() if match else ""
            return [None if rest.startswith(("{", "attributes")) else ...]
        shardings = []
        for part in split(text[1 : closing(text, 0) - 1] if ")" in text else text[1:]):
            shardings.append(self.typed(part.strip() + ",", 0))
        return shardings


def _operands(text: str) -> str:
    """Return the part of a line that lists the operands."""
    cut = re.search(r"\sin_shardings=|\sattributes|\{sdy|\s:\s|\) \(%arg|\(%arg\d+: ", text)
    return text[: cut.start()] if cut else text


_PAIRS = {"<": ">", "(": ")", "{": "}", "[": "]"}


def closing(text: str, at: int) -> int:
    """Return the position after the bracket that closes the one at `at`, or the end of the text."""
    open_, close, depth = text[at], _PAIRS[text[at]], 0
    while at < len(text):
        if text.startswith("->", at):
            at += 2
            continue
        depth += {open_: 1, close: -1}.get(text[at], 0)
        at += 1
        if not depth:
            return at
    return len(text)


def split(text: str) -> list[str]:
    """Split a text at the commas that are outside all brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "<({[") - (char in ">)}]")
        if char == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]] if text.strip() else parts

"""The notation of factor rules for users: `i j, j k -> i k`.

A rule has one word per dimension, commas between tensors, and results behind the arrow. `(i j)` is
one dimension that maps to two factors, major to minor; a leading `...` stands for any number of
dimensions, the same wherever it occurs (`...1` is another such group). Factors that are reduced,
that need replication, whose shards exchange rows with adjacent shards, or whose propagation is
blocked are listed by name. The notation is that of JAX's sharding rules for custom operations.

    sharding_rule("b (h d), d k -> b h k", reduction="d", sizes={"h": 8})
    sharding_rule("b (h d), d k -> b h k {h=8} reduction={d}")
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from shardir.errors import RuleError, count_noun
from shardir.op_rules.factors import Factor, FactorKind, FactorRule
from shardir.text.number_text import parse_natural_number

KIND_OF_KEYWORD = {
    "reduction": FactorKind.REDUCE,
    "need_replication": FactorKind.REPLICATE,
    "permutation": FactorKind.PERMUTE,
}
"""The keyword of each kind of factor."""
BLOCKED = "blocked"
MAX_RULE_CHARACTERS = 100_000
"""The maximum length of a rule; the parse time is quadratic in the length."""

DimFactorNames = tuple[tuple[str, ...], ...]
"""For each dimension the names of its factors; a name that starts with dots is a group."""
Shape = tuple[int, ...]
FactorNames = str | Iterable[str]


@dataclass(frozen=True, slots=True)
class ShardingRule:
    """The rule of an operation for all sizes of its tensors; created by `sharding_rule`."""

    operands: tuple[DimFactorNames, ...]
    """For each operand the factors of its dimensions."""
    results: tuple[DimFactorNames, ...]
    """For each result the factors of its dimensions."""
    kinds: tuple[tuple[str, FactorKind], ...] = ()
    """The factors whose kind the rule states, with their kinds."""
    blocked: tuple[str, ...] = ()
    """The factors whose propagation is blocked."""
    sizes: tuple[tuple[str, int], ...] = ()
    """The factors whose size the rule states, with their sizes."""

    def __str__(self) -> str:
        text = " -> ".join(
            ", ".join(map(_format_dims, side)) for side in (self.operands, self.results)
        )
        if self.sizes:
            text += f" {{{', '.join(f'{name}={size}' for name, size in self.sizes)}}}"
        for word, kind in KIND_OF_KEYWORD.items():
            if names := [name for name, its in self.kinds if its is kind]:
                text += f" {word}={{{', '.join(names)}}}"
        return text + (f" {BLOCKED}={{{', '.join(self.blocked)}}}" if self.blocked else "")

    def for_shapes(self, operands: Sequence[Shape], results: Sequence[Shape]) -> FactorRule:
        """Return the factor rule for the given shapes; raise `RuleError` if the rule does not fit
        them.

        A factor that maps to dimensions of different sizes has the smallest of these sizes. Equal
        arguments return the same object, because callers compare rules by identity.
        """
        return _fit_to_shapes(self, tuple(operands), tuple(results))


def sharding_rule(
    text: str,
    *,
    reduction: FactorNames = (),
    need_replication: FactorNames = (),
    permutation: FactorNames = (),
    blocked: FactorNames = (),
    sizes: Mapping[str, int] | None = None,
) -> ShardingRule:
    """Parse a rule such as `i j, j k -> i k`.

    The keyword arguments `reduction`, `need_replication`, `permutation` and `blocked` name factors,
    as a tuple or in one string separated by spaces; they may also follow the rule, as in
    `reduction={j}`. `sizes` states the sizes of factors that are never a full dimension, as in
    `{i=2, j=4}`. Other factors pass shardings through. Raises `RuleError`.
    """
    if not isinstance(text, str):
        raise RuleError(f"a rule is a text such as 'i j -> j i', got {text!r}")
    if len(text) > MAX_RULE_CHARACTERS:
        raise RuleError(
            f"a rule has at most {MAX_RULE_CHARACTERS} characters, and this one has {len(text)}: "
            f"{text!r}"
        )
    bare, sections, numbers = _split_sections(text)
    operands, results = _parse_mapping(bare)
    listed = {
        "reduction": reduction,
        "need_replication": need_replication,
        "permutation": permutation,
        BLOCKED: blocked,
    }
    for word, names in listed.items():
        if not isinstance(names, (str, list, tuple)):
            raise RuleError(f"{word} of a rule has names of factors, got {names!r}")
        chosen = names.replace(",", " ").split() if isinstance(names, str) else names
        sections[word] = [*sections.get(word, ()), *chosen]
    for name, size in (sizes or {}).items():
        numbers[name] = size
    _check_names(bare, (*operands, *results), sections, numbers)
    kinds = tuple((name, kind) for word, kind in KIND_OF_KEYWORD.items() for name in sections[word])
    return ShardingRule(operands, results, kinds, tuple(sections[BLOCKED]), tuple(numbers.items()))


_SECTION = re.compile(r"\s*(?:(\w+)\s*=\s*)?\{([^{}]*)\}")
_TOKEN = re.compile(r"\s*(?:([A-Za-z]\w*)|(\.\.\.[0-9]*)|([(),])|$)")


def _split_sections(text: str) -> tuple[str, dict[str, list[str]], dict[str, int]]:
    """Return the rule, its keyword sections, and its factor sizes."""
    bare, brace, _ = text.partition("{")
    start = len(bare)
    if brace and (word := re.search(r"\w+\s*=\s*$", bare)):
        start = word.start()
    sections: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    at = start
    while text[at:].strip():
        match = _SECTION.match(text, at)
        if match is None or (match[1] or "") not in ("", BLOCKED, *KIND_OF_KEYWORD):
            raise RuleError(
                f"{text[at:].strip()!r} behind the rule {text[:start].strip()!r} is neither sizes "
                f"such as {{i=2, j=4}} nor one of {', '.join((*KIND_OF_KEYWORD, BLOCKED))} such as "
                "reduction={j}"
            )
        words = [word.strip() for word in match[2].split(",") if word.strip()]
        if match[1]:
            sections.setdefault(match[1], []).extend(words)
        else:
            sizes.update(map(_parse_size, words))
        at = match.end()
    return text[:start].strip(), sections, sizes


def _parse_size(text: str) -> tuple[str, int]:
    name, _, number = (part.strip() for part in text.partition("="))
    size = parse_natural_number(number)
    if size is None:
        raise RuleError(f"{text!r} is not a factor size; write it as i=2")
    return name, size


def _parse_mapping(text: str) -> tuple[tuple[DimFactorNames, ...], tuple[DimFactorNames, ...]]:
    sides = text.split("->")
    if len(sides) != 2:
        number = "more than one" if len(sides) > 2 else "no"
        raise RuleError(
            f"the rule {text!r} has {number} ->; write operands -> results, as in i j, j k -> i k"
        )
    before, behind = (_parse_tensors(side, text) for side in sides)
    return before, behind


def _parse_tensors(side: str, rule: str) -> tuple[DimFactorNames, ...]:
    """Return the tensors of one side; an empty side is one tensor of rank 0."""
    tensors: list[list[tuple[str, ...]]] = [[]]
    group: list[str] | None = None
    at = 0
    while side[at:].strip():
        match = _TOKEN.match(side, at)
        if match is None:
            wrong = side[at:].strip().split()[0]
            raise RuleError(
                f"{wrong!r} in the rule {rule!r} is not a factor name; names begin with a "
                "letter, and the other symbols of a rule are ( ) , -> and ..."
            )
        name, dots, mark = match.groups()
        at = match.end()
        if dots and (group is not None or tensors[-1]):
            raise RuleError(f"{dots!r} in the rule {rule!r} is not in front of a tensor")
        if name and group is not None:
            group.append(name)
        elif name or dots:
            tensors[-1].append((name or _group_name(dots),))
        elif (mark == ")") == (group is None):
            raise RuleError(f"the brackets of the rule {rule!r} do not match; they are not nested")
        elif mark == "(":
            group = []
        elif mark == ")":
            tensors[-1].append(tuple(group or ()))
            if len(tensors[-1][-1]) < 2:
                raise RuleError(f"brackets in the rule {rule!r} hold fewer than two factors")
            group = None
        else:
            tensors.append([])
    if group is not None:
        raise RuleError(f"the brackets of the rule {rule!r} do not match; they are not nested")
    return tuple(tuple(dims) for dims in tensors)


def _group_name(word: str) -> str:
    """Return the canonical name of a group of leading dimensions; `...` is `...0`."""
    number = parse_natural_number(word[3:] or "0")
    if number is None:
        raise RuleError(f"{word!r} has a number of too many digits; write ...0 to ...9")
    return f"...{number}"


def _is_group(dims: tuple[str, ...]) -> bool:
    return dims[0].startswith("...")


def _format_dims(dims: DimFactorNames) -> str:
    words = (f"({' '.join(dim)})" if len(dim) > 1 else dim[0] for dim in dims)
    return " ".join("..." if word == "...0" else word for word in words)


def _check_names(
    rule: str,
    tensors: tuple[DimFactorNames, ...],
    sections: Mapping[str, Sequence[str]],
    sizes: Mapping[str, int],
) -> None:
    alone = {dim[0]: None for dims in tensors for dim in dims if len(dim) == 1}
    declared = {name: None for dims in tensors for dim in dims for name in dim if name[0] != "."}
    for dims in tensors:
        seen: set[str] = set()
        for name in (name for dim in dims for name in dim):
            if name in seen:
                raise RuleError(
                    f"{name!r} occurs twice in {_format_dims(dims)!r} of the rule {rule!r}"
                )
            seen.add(name)
    has = f"it has {', '.join(declared)}" if declared else "it has none"
    kind_of: dict[str, str] = {}
    for word, named in sections.items():
        for name in named:
            if name not in declared:
                raise RuleError(f"{word} names {name!r}, which is not a factor of {rule!r}; {has}")
            if word == BLOCKED:
                continue
            if name in kind_of:
                raise RuleError(
                    f"{name!r} is in {kind_of[name]} and in {word}; a factor is of one kind"
                    if kind_of[name] != word
                    else f"{word} names {name!r} twice"
                )
            kind_of[name] = word
    for name, size in sizes.items():
        if name not in declared:
            raise RuleError(f"sizes names {name!r}, which is not a factor of {rule!r}; {has}")
        if name in alone:
            raise RuleError(
                f"{name!r} is a whole dimension in the rule {rule!r}, which states its size; "
                "leave it out of sizes"
            )
        if size < 1:
            raise RuleError(f"the size of {name!r} is {size}; it must be at least 1")
    for name in declared:
        if name not in alone and name not in sizes:
            raise RuleError(
                f"{name!r} is never a whole dimension in the rule {rule!r}, so that none states "
                f"its size; add sizes={{{name!r}: ...}}"
            )


@lru_cache(maxsize=1 << 12)
def _fit_to_shapes(
    rule: ShardingRule, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> FactorRule:
    for noun, mapped, shapes in (("operand", rule.operands, operands),
                                 ("result", rule.results, results)):  # fmt: skip
        if not shapes and mapped == ((),):
            # An empty side also stands for no tensors; otherwise it stands for one scalar.
            continue
        if len(mapped) != len(shapes):
            raise RuleError(f"the rule {str(rule)!r} has {count_noun(len(mapped), noun)}, not "
                            f"{len(shapes)}")  # fmt: skip
    groups: dict[str, int] = {}
    tensors = [
        _expand_group(rule, f"{noun} {number}", dims, shape, groups)
        for noun, mapped, shapes in (("operand", rule.operands, operands),
                                     ("result", rule.results, results))
        for number, (dims, shape) in enumerate(zip(mapped, shapes, strict=False))
    ]  # fmt: skip
    shapes = (*operands, *results)
    sizes: dict[str, int] = {}
    stated = dict(rule.sizes)
    for dims, shape in zip(tensors, shapes, strict=True):
        for dim, size in zip(dims, shape, strict=True):
            for name in dim:
                # The order of factors decides ties in propagation: it is the order in the text.
                new_size = size if len(dim) == 1 else stated.get(name, sizes.get(name, 0))
                old_size = sizes.get(name, 0)
                sizes[name] = (
                    min(new_size, old_size) if new_size and old_size else new_size or old_size
                )
    for number, (dims, shape) in enumerate(zip(tensors, shapes, strict=True)):
        for position, (names, size) in enumerate(zip(dims, shape, strict=True)):
            product = 1
            for name in names:
                product *= sizes[name]
            if len(names) > 1 and product != size:
                where = (f"operand {number}" if number < len(operands)
                         else f"result {number - len(operands)}")  # fmt: skip
                loops = " and ".join(f"{name} of {sizes[name]}" for name in names)
                raise RuleError(
                    f"dimension {position} of {where} has size {size}, but the rule {str(rule)!r} "
                    f"maps it to {loops}"
                )
    numbers = {name: i for i, name in enumerate(sizes)}
    factors = {name: Factor(size) for name, size in sizes.items()}
    for name, kind in rule.kinds:
        factors[name] = replace(factors[name], kind=kind)
    for name in rule.blocked:
        factors[name] = replace(factors[name], blocked=True)
    walked = [tuple(tuple(numbers[name] for name in dim) for dim in dims) for dims in tensors]
    return FactorRule(
        tuple(walked[: len(operands)]), tuple(walked[len(operands) :]), tuple(factors.values())
    )


def _expand_group(
    rule: ShardingRule, where: str, dims: DimFactorNames, shape: Shape, groups: dict[str, int]
) -> DimFactorNames:
    """Return the dimensions of a tensor with its group expanded to one name per dimension."""
    has_dots = bool(dims) and _is_group(dims[0])
    count = len(shape) - len(dims) + has_dots
    if count < 0 or (count and not has_dots):
        least = "at least " if has_dots else ""
        raise RuleError(
            f"{where} has {count_noun(len(shape), 'dimension')}, but the rule {str(rule)!r} "
            "gives it "
            f"{least}{len(dims) - has_dots}"
        )
    if not has_dots:
        return dims
    group = dims[0][0]
    if groups.setdefault(group, count) != count:
        dots = _format_dims(dims[:1])
        raise RuleError(
            f"{dots!r} in the rule {str(rule)!r} stands for "
            f"{count_noun(groups[group], 'dimension')} "
            f"and, in {where}, for {count}; number groups that differ, as in ...1"
        )
    return (*((f"{group}_{i}",) for i in range(count)), *dims[1:])

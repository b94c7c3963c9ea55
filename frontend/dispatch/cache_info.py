"""The reasons for which calls of a jitted function were compiled: `cache_info`, `log_compiles`.

Each compilation is compared with the most similar earlier one of the same function.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import unwrap
from types import CodeType
from weakref import WeakKeyDictionary

from shardir.display.representation import abbreviate
from shardir.errors import count_noun
from shardir.frontend.arrays.signature import ArraySignature
from shardir.frontend.config import config
from shardir.frontend.dispatch.call_table import TraceContext
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import user_position
from shardir.frontend.tracing.parameters import static_value

MAX_DIFFERENCES = 3
"""Maximum number of differences that a reason lists."""
MAX_RECORDED_COMPILATIONS = 1000
"""Maximum number of compilations of one function that are recorded; the oldest are dropped."""
MAX_ARGUMENTS_CHARACTERS = 120
"""Maximum length of the types of the arguments in a table or a log message, in characters."""

LOGGER = logging.getLogger("shardir.jit")
"""The logger of compilations, with the level WARNING as in JAX."""


@dataclass(frozen=True, slots=True, eq=False)
class CallKey:
    """The properties of a call that determine its program.

    `static` are the labels and cache keys of static arguments.
    """

    structure: tree.PyTreeDef
    labels: tuple[str, ...]
    signatures: tuple[ArraySignature, ...]
    static: tuple[tuple[str, object], ...]
    context: TraceContext

    def __repr__(self) -> str:
        pairs = zip(self.labels, self.signatures, strict=True)
        types = [f"{label}: {each.abstract.type}" for label, each in pairs]
        types += [f"{label}={_static_text(value)}" for label, value in self.static]
        text = ", ".join(types)
        if len(text) <= MAX_ARGUMENTS_CHARACTERS:
            return text
        return text[: MAX_ARGUMENTS_CHARACTERS - 3] + "..."


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation: its call, the seconds it took, and the reason for it."""

    call: CallKey
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """The result of `cache_info`: the compilations of a function, the oldest first.

    `currsize` is the number of programs in its cache. Print it for a table.
    """

    name: str
    currsize: int
    compilations: tuple[Compilation, ...]

    def __str__(self) -> str:
        count = len(self.compilations)
        programs = count_noun(self.currsize, "program")
        lines = [f"{self.name}: {count_noun(count, 'compilation')}, {programs} in the cache"]
        for number, each in enumerate(self.compilations, 1):
            lines.append(f"{number}  {each.seconds * 1e3:.0f} ms  ({each.call!r})")
            lines.append(f"   {each.reason}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return abbreviate(str(self))


_compiled_codes: WeakKeyDictionary[CodeType, object] = WeakKeyDictionary()
"""For the code of each compiled function the log of the jitted function that compiled it last."""


class CompilationLog:
    """The recorded compilations of one jitted function."""

    def __init__(self) -> None:
        self.entries: list[Compilation] = []
        self._was_cleared = False

    def clear(self) -> None:
        """Record that the cache of the function was cleared."""
        self._was_cleared = True

    def add(self, fun: UserFunction, name: str, call: CallKey, seconds: float) -> None:
        """Record a compilation with its reason; write it to the log if `log_compiles` is on."""
        reason = self._reason(fun, call)
        if len(self.entries) >= MAX_RECORDED_COMPILATIONS:
            del self.entries[0]
        self.entries.append(Compilation(call, seconds, reason))
        if config.log_compiles:
            place = user_position()
            where = f"{place.site.loc}: " if place else ""
            LOGGER.warning(
                "%scompiled %s in %.0f ms for (%r): %s", where, name, seconds * 1e3, call, reason
            )

    def _reason(self, fun: Callable[..., object], call: CallKey) -> str:
        code = getattr(unwrap(fun), "__code__", None)
        before = None
        if isinstance(code, CodeType):
            before = _compiled_codes.get(code)
            _compiled_codes[code] = self
        if self.entries:
            return _reason_of_difference(call, self.entries, self._was_cleared)
        if before is not None:
            return (
                "first call of this jitted function, and another one with the same code was "
                "compiled before; call jit once, outside of loops and functions"
            )
        return "first call"


def _reason_of_difference(call: CallKey, earlier: Sequence[Compilation], cleared: bool) -> str:
    nearest = min(
        ([*_differences(call, each.call)] for each in reversed(earlier)),
        key=len,
    )
    if not nearest:
        why = "clear_cache was called" if cleared else "the cache was full"
        return f"the program was removed from the cache, because {why}"
    more = len(nearest) - MAX_DIFFERENCES
    text = "; ".join(nearest[:MAX_DIFFERENCES])
    return f"{text}; and {more} more differences" if more > 0 else text


def _differences(new: CallKey, old: CallKey) -> Iterator[str]:
    """Yield a sentence for each difference of two calls."""
    if new.structure != old.structure:
        added = [label for label in new.labels if label not in old.labels]
        removed = [label for label in old.labels if label not in new.labels]
        yield from (f"argument {label} is new" for label in added)
        yield from (f"argument {label} is absent" for label in removed)
        if not added and not removed:
            yield "the arguments have another pytree structure"
    before = dict(zip(old.labels, old.signatures, strict=True))
    for label, signature in zip(new.labels, new.signatures, strict=True):
        if (known := before.get(label)) is not None:
            yield from _signature_differences(label, signature, known)
    known_static = dict(old.static)
    for label, value in new.static:
        if label not in known_static:
            yield f"static argument {label} is new"
        elif known_static[label] != value:
            values = _static_text(value), _static_text(known_static[label])
            yield f"static argument {label} is {values[0]}, not {values[1]}"
    for label in known_static.keys() - dict(new.static).keys():
        yield f"static argument {label} is absent"
    yield from _context_differences(new.context, old.context)


def _signature_differences(label: str, new: ArraySignature, old: ArraySignature) -> Iterator[str]:
    types = new.abstract.type, old.abstract.type
    if types[0].shape != types[1].shape:
        yield f"argument {label} has shape {types[0].shape}, not {types[1].shape}"
    if types[0].dtype != types[1].dtype:
        yield f"argument {label} has dtype {types[0].dtype}, not {types[1].dtype}"
    if new.abstract.weak != old.abstract.weak:
        kinds = "has a weak type, as Python numbers have", "does not have a weak type"
        yield f"argument {label} {kinds[not new.abstract.weak]}"
    if new.sharding != old.sharding:
        places = [
            "not committed to devices" if each is None else f"placed as {each}"
            for each in (new.sharding, old.sharding)
        ]
        yield f"argument {label} is {places[0]}, not {places[1].removeprefix('not ')}"


def _context_differences(new: TraceContext, old: TraceContext) -> Iterator[str]:
    for (name, value), (_, before) in zip(new[0], old[0], strict=True):
        if value != before:
            yield f"the setting {name} is {value!r}, not {before!r}"
    if new[1] != old[1]:
        yield f"the mesh of the enclosing block is {new[1]}, not {old[1]}"
    if new[2] != old[2]:
        yield "other sharding rules are registered"
    if new[3] != old[3]:
        yield f"the default device is {new[3].device}, not {old[3].device}"


def _static_text(key: PyTree) -> str:
    """Return the value of a static argument from its cache key as short text."""
    return brief(static_value(key))

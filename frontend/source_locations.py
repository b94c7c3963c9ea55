"""Source locations: the current line of the user's program and the variable of a result.

An operation belongs to the innermost frame outside of this package. The properties of an
instruction (its position in the file, the names under which its result is stored) are computed once
per instruction, so that tracing costs a few dictionary lookups per operation.
"""

import dis
import inspect
import linecache
import os
import re
import sys
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from operator import attrgetter
from types import CodeType, FrameType
from typing import TypeVar

import optree

from shardir import errors
from shardir.frontend.command_callers import command_callers
from shardir.ir.location import Loc, is_cell, name_cell


def _internal_folders() -> tuple[str, ...]:
    """Return the folders whose frames are internal: this package, optree, and the command-line
    tools.
    """
    package = os.path.dirname(os.path.abspath(errors.__file__))
    inside = [package, *(os.path.join(package, n) for n in ("frontend", "passes", "backends"))]
    inside += [os.path.realpath(path) for path in inside]
    inside.append(os.path.dirname(os.path.abspath(optree.__file__)))
    inside.append(os.path.dirname(sys.executable))
    found = [find_spec(name) for name in ("typer", "click")]
    inside += [os.path.dirname(spec.origin) for spec in found if spec and spec.origin]
    return tuple(dict.fromkeys(path + os.sep for path in inside))


_INTERNAL_PREFIXES = (*_internal_folders(), "<frozen ")
_GENERATED_METHOD = "__create_fn__.<locals>."
"""Part of the qualified names of methods that `dataclass` generates, whose file is `<string>`."""


_boundaries: list[CodeType] = []
Function = TypeVar("Function", bound=Callable[..., object])


def trace_boundary(function: Function) -> Function:
    """Mark a function that starts a trace, so that variables of its caller do not name traced
    values.
    """
    _boundaries.append(function.__code__)
    return function


def find_definition(function: Callable[..., object]) -> Loc | None:
    """Return the location of the definition of a function, or `None` if it is not written in
    Python.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    refresh_working_directory()
    return (
        Loc(_shown_path(code.co_filename), code.co_firstlineno, 1)
        if isinstance(code, CodeType)
        else None
    )


class CallSite:
    """The source location of one instruction of the user's program.

    `names` are the variables in which its result is stored (several where the result is unpacked).
    `returned` states that the instruction's result is the return value of the function.
    """

    __slots__ = ("loc", "names", "returned", "width")

    def __init__(self, loc: Loc, width: int, names: tuple[str, ...], returned: bool) -> None:
        self.loc, self.width, self.names, self.returned = loc, width, names, returned


class _CodeInfo:
    """Cached properties of a code object: its instructions in order, and the call sites by
    offset."""

    __slots__ = ("boundary", "code", "internal", "sites", "steps")

    def __init__(self, code: CodeType) -> None:
        self.code = code  # The reference keeps the id of the code object unique.
        self.internal = (
            code.co_filename.startswith(_INTERNAL_PREFIXES)
            or _GENERATED_METHOD in code.co_qualname
            or code in command_callers
        )
        self.boundary = code in _boundaries
        self.sites: dict[int, CallSite] = {}
        self.steps: list[dis.Instruction] = []

    def add_site(self, offset: int) -> CallSite:
        """Return the site of the instruction at `offset`, or of the one whose inline caches are
        there.
        """
        if not self.steps:
            self.steps = list(dis.get_instructions(self.code))
        i = bisect_right(self.steps, offset, key=attrgetter("offset")) - 1
        site = self.sites[offset] = _make_site(self.code, self.steps, max(i, 0))
        return site


_code_cache: dict[int, _CodeInfo] = {}
_working_directory = ""


def refresh_working_directory() -> None:
    """Clear the cache if the working directory has changed, because paths are relative to it.

    Called when tracing starts and before an error is located.
    """
    global _working_directory
    try:
        folder = os.getcwd() + os.sep
    except FileNotFoundError:
        folder = ""
    if folder != _working_directory or len(_code_cache) > 20_000:
        _code_cache.clear()
        _working_directory = folder


def _shown_path(file: str) -> str:
    """Return the name of a cell of a notebook, or the path relative to the working directory."""
    file = name_cell(file)
    return (
        file[len(_working_directory) :]
        if _working_directory and file.startswith(_working_directory)
        else file
    )


def _make_site(code: CodeType, steps: list[dis.Instruction], number: int) -> CallSite:
    line, end, column, last = steps[number].positions or (None, None, None, None)
    width = (last or 0) - (column or 0) if end == line else 1
    loc = Loc(_shown_path(code.co_filename), line or code.co_firstlineno, (column or 0) + 1)
    names, returned = _store_targets(steps, number + 1)
    return CallSite(loc, max(width, 1), names, returned)


def _store_targets(steps: list[dis.Instruction], at: int) -> tuple[tuple[str, ...], bool]:
    """Return the variables in which the value on the stack is stored, and whether it is
    returned."""
    if at >= len(steps):
        return (), False
    step = steps[at]
    if step.opname == "RETURN_VALUE":
        return (), True
    if step.opname == "UNPACK_SEQUENCE" and isinstance(step.argval, int):
        places = [
            name for s in steps[at + 1 : at + 1 + step.argval] for name in _stored_variables(s)
        ]
        names = tuple(name for name in places[: step.argval] if name)
        return (names if len(names) == step.argval else ()), False
    name = _stored_variables(step)[0]
    return ((name,) if name else ()), False


def _stored_variables(step: dis.Instruction) -> tuple[str, ...]:
    """Return the variables that an instruction stores into, in order; `""` for a target without a
    name.
    """
    if not step.opname.startswith(("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")):
        return ("",)
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    # Python 3.13 joins a store with the instruction after it, which may be a load.
    stored = names if step.opname == "STORE_FAST_STORE_FAST" else names[:1]
    return tuple("" if name == "_" else str(name) for name in stored)


class UserPosition:
    """The current position in the user's program.

    `call` is the frame of this package that the user's line called. Two operations with the same
    `call` belong to the same execution of the same expression.
    """

    __slots__ = ("call", "frame", "site")

    def __init__(self, site: CallSite, frame: FrameType, call: object) -> None:
        self.site, self.frame, self.call = site, frame, call

    def called_name(self) -> str:
        """Return the name of the public function that the user's line called, or `""` if it has
        none, such as an operator or a function that a transformation returned."""
        return _name_of_call(self.call) if isinstance(self.call, FrameType) else ""

    def names(self) -> tuple[str, ...]:
        """Return the variables that receive the result, here or in the caller to which this
        function returns.

        Functions of this package in between pass the result on.
        """
        site, frame = self.site, self.frame.f_back
        while site.returned and frame is not None:
            code = _frame_code_info(frame)
            if code.boundary:
                return ()
            if not code.internal:
                site = code.sites.get(frame.f_lasti) or code.add_site(frame.f_lasti)
            frame = frame.f_back
        return () if site.returned else site.names


def _name_of_call(frame: FrameType) -> str:
    """Return the public name of the function that a frame of this package runs, or `""`."""
    code = frame.f_code
    qualified = code.co_qualname
    if code.co_name == "wrapper":  # That of a decorator.
        qualified = str(getattr(frame.f_locals.get("function"), "__qualname__", ""))
    elif code.co_name == "__call__":
        called = frame.f_locals.get(code.co_varnames[0])
        # A lookup that `__getattr__` refuses would locate an error again.
        qualified = str(inspect.getattr_static(called, "__name__", ""))
    owner, _, name = qualified.rpartition(".")
    if name in ("__init__", "__new__"):
        name = owner.rpartition(".")[2]
        return "" if "<" in name else name  # Methods that `dataclass` generates have no owner.
    return "" if "<" in owner or name.startswith(("_", "<")) else name


def _frame_code_info(frame: FrameType) -> _CodeInfo:
    code = frame.f_code
    found = _code_cache.get(id(code))
    return _code_info(code) if found is None else found


def _code_info(code: CodeType) -> _CodeInfo:
    result = _code_cache.get(id(code))
    if result is None:
        result = _code_cache[id(code)] = _CodeInfo(code)
    return result


def is_internal_code(code: CodeType) -> bool:
    """Return whether a code object belongs to this package, to optree or to the command line."""
    return _code_info(code).internal


def site_at(code: CodeType, offset: int) -> CallSite:
    """Return the call site at an offset of a code object."""
    known = _code_info(code)
    return known.sites.get(offset) or known.add_site(offset)


_position_override: ContextVar[UserPosition | None] = ContextVar("shardir_standing", default=None)


@contextmanager
def override_position(place: UserPosition | None) -> Iterator[None]:
    """Use `place` as the position in the user's program inside the block; `None` changes
    nothing."""
    if place is None:
        yield
        return
    token = _position_override.set(place)
    try:
        yield
    finally:
        _position_override.reset(token)


def user_position() -> UserPosition | None:
    """Return the innermost position in the user's program, or `None` if there is none."""
    place = _position_override.get()
    if place is not None:
        return place
    frame: FrameType | None = sys._getframe(1)
    call = None
    while frame is not None:
        code = _frame_code_info(frame)
        if not code.internal:
            site = code.sites.get(frame.f_lasti) or code.add_site(frame.f_lasti)
            return UserPosition(site, frame, call)
        call, frame = frame, frame.f_back
    return None


def find_variable_name(value: object) -> str:
    """Return the name of a variable that holds `value`, or `""` if there is none.

    The outermost running function of the user takes precedence, then inner ones, then the module.
    """
    place = user_position()
    if place is None:
        return ""
    result = _name_in(place.frame.f_globals, value)
    frame: FrameType | None = place.frame
    while frame is not None and not _frame_code_info(frame).internal:
        known = frame.f_locals
        result = _name_in(known, value) or result
        if sys.getrefcount(known) <= _NUM_REFERENCES_TO_LOCALS:
            _release_locals(frame.f_code, known)
        frame = frame.f_back
    return result


_NUM_REFERENCES_TO_LOCALS = 3
"""The references to the variables of a frame that no other code has read: the frame, the variable
`known`, and the argument of `getrefcount`."""


def _release_locals(code: CodeType, known: Mapping[str, object]) -> None:
    """Remove the variables of a function from the dictionary that its frame keeps.

    Before Python 3.13, `f_locals` is a copy that the frame keeps as long as it runs, so that `del`
    in the function would not free an array.
    """
    if isinstance(known, dict) and code.co_flags & inspect.CO_OPTIMIZED:
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            known.pop(name, None)


def _name_in(scope: Mapping[str, object], value: object) -> str:
    names = (name for name, known in scope.items() if known is value)
    return next((name for name in names if name.isidentifier() and name[0] != "_"), "")


def with_location(message: str, site: CallSite | None = None) -> str:
    """Return the message followed by the source line of `site`, by default the current user
    line; a message that ends with this line is returned unchanged."""
    name = ""
    if site is None:
        refresh_working_directory()
        place = user_position()
        if place is None:
            return message
        site, name = place.site, place.called_name()
    arrow, line = "\n" + _arrow_line(site.loc), "\n" + underline(site.loc, site.width)
    named = line.replace(arrow, f"{arrow}, in a call of {name}", 1)
    if message.endswith((line, named)):
        return message
    # The shown line may call the function by another name, or not be available.
    has_name = not name or re.search(rf"\b{re.escape(name)}\b", message + line)
    return message + (line if has_name else named)


def format_error_location(error: BaseException) -> str:
    """Return the innermost user line of the traceback of `error` as text for a message, or `""`."""
    refresh_working_directory()
    for step in reversed(traceback.extract_tb(error.__traceback__)):
        own = "site-packages" not in step.filename and not step.filename.startswith(
            _INTERNAL_PREFIXES
        )
        if own and step.lineno:
            loc = Loc(_shown_path(step.filename), step.lineno, (step.colno or 0) + 1)
            same = step.end_lineno == step.lineno and step.end_colno is not None
            return "\n" + underline(loc, (step.end_colno or 0) - loc.column + 1 if same else 1)
    return ""


def has_location(message: str) -> bool:
    """Return whether a message shows a source line already."""
    return _ARROW in message


_ARROW = "--> "


def _arrow_line(loc: Loc) -> str:
    """Return the line of a message that states a location."""
    place = f"Cell {loc.file}, line {loc.line}" if is_cell(loc.file) else f"{loc}:{loc.column}"
    return f"{' ' * len(str(loc.line))}{_ARROW}{place}"


def underline(loc: Loc, width: int = 1) -> str:
    """Return the source line of `loc`, with carets below the first `width` characters."""
    gutter, arrow = " " * len(str(loc.line)), _arrow_line(loc)
    is_named = is_cell(loc.file)
    is_complete = is_named or os.path.isabs(loc.file) or loc.file.startswith("<")
    file = loc.file if is_complete else _working_directory + loc.file
    source = linecache.getline(file, loc.line).rstrip()
    if not source:
        return arrow
    indent = len(source) - len(source.lstrip())
    # A column counts UTF-8 bytes; the caret counts characters.
    start = len(source.encode()[: loc.column - 1].decode(errors="ignore"))
    return (
        f"{arrow}\n{gutter} |\n{loc.line} | {source[indent:]}\n"
        f"{gutter} | {' ' * (start - indent)}{'^' * max(min(width, len(source) - start), 1)}"
    )

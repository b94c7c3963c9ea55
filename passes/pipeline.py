"""Passes, and their composition to pipelines.

A pipeline is text: `propagate{level=aggressive},partition`. Options are the fields of the pass, so
`str(Pipeline.parse(text)) == text` for any pipeline that states neither the step `default` nor the
default value of an option.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from inspect import get_annotations, isabstract
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Self, get_type_hints

from shardir._imports.lazy_import import lazy_import
from shardir.errors import PipelineError, ShardirError, VerifyError, suggest_name
from shardir.ir.location import exception_place
from shardir.ir.module import Module
from shardir.passes.garbage_collection import paused_garbage_collection
from shardir.passes.pass_aliases import FORMER_NAMES, current_name
from shardir.plugins.entry_points import OWN_ORIGIN
from shardir.plugins.registry import Registry, load_environment_plugins

if TYPE_CHECKING:
    from shardir.verify import verifier
else:
    verifier = lazy_import("shardir.verify.verifier")

PASSES: Registry[type["Pass"]] = Registry(
    "pass",
    "shardir.passes",
    expected="a subclass of shardir.passes.Pass",
    accepts=lambda entry: isinstance(entry, type) and issubclass(entry, Pass),
    name_of=lambda kind: kind.name,
)
"""The passes by name. Installed packages and loaded files add theirs (`shardir.plugins`)."""
PassObserver = Callable[["Pass", Module, Module, float], None]
"""Observer of a pipeline, called after every pass with the pass, the module before and after it,
and its seconds."""

DEFAULT_PIPELINE = (
    "propagate{leave_open=true},inline-calls,resolve-conflicts,merge-shifts,reshard,"
    "sink-reductions,sink-reshards,share-reshards,partition,cse,dce"
)
"""The pipeline from a traced program to the program that each device runs."""
DEFAULT_STEP = "default"
"""The step that stands for the passes of the default pipeline."""
EMPTY_STEP = "none"
"""The step that stands for no pass."""
STAGING_PIPELINE = "split-stages,split-backward,schedule-pipelines,stack-weights"
"""The pipeline that splits `pipeline` operations into stages and schedules them."""
SHARDY_PIPELINE = (
    "propagate,insert-explicit-reshards,reshard{layouts=shardy},partition{planner=greedy},cse,dce"
)
"""The pipeline whose decisions are those of OpenXLA Shardy, without improvements."""


@dataclass(frozen=True)
class Pass(ABC):
    """A named function from module to module. Subclass it, name it, and add fields for options.

    A pass may rely on a valid module and must return one. Options are `str`, `int`, `float` or
    `bool` fields with defaults; a `choices` entry lists the valid values of a field.
    """

    name: ClassVar[str]
    """The name in the text of pipelines."""
    choices: ClassVar[dict[str, Sequence[str]]] = {}
    """The valid values of fields that accept only some values, by field."""

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        if name is None:
            raise TypeError(
                f"the pass class {cls.__name__} has no name; write class "
                f'{cls.__name__}(Pass, name="a-name")'
            )
        if not _PASS_NAME.fullmatch(name) or name in (DEFAULT_STEP, EMPTY_STEP):
            raise ValueError(
                f"pass {name!r} cannot be defined: pipelines cannot name it; use letters, digits, "
                f"_ and -, and another name than {DEFAULT_STEP!r} and {EMPTY_STEP!r}"
            )
        if name in FORMER_NAMES:
            raise ValueError(
                f"pass {name!r} cannot be defined: this is the former name of "
                f"{FORMER_NAMES[name]!r}"
            )
        cls.name = name
        PASSES.register(name, cls)

    @abstractmethod
    def __call__(self, module: Module) -> Module: ...

    def __str__(self) -> str:
        chosen = [
            f"{f.name}={format_option(getattr(self, f.name))}"
            for f in fields(self)
            if getattr(self, f.name) != f.default
        ]
        return self.name + (f"{{{','.join(chosen)}}}" if chosen else "")


@dataclass(frozen=True)
class Pipeline:
    """A sequence of passes."""

    passes: tuple[Pass, ...]
    """The passes, in the order in which they run."""

    @classmethod
    def parse(cls, text: str, default: "Pipeline | None" = None) -> Self:
        """Parse a pipeline in which the step `default` stands for the passes of `default`.

        By default, these are the passes of `DEFAULT_PIPELINE`. Passes before or after that step run
        before or after them. The steps `before:PASS` and `after:PASS` set the position of the
        passes that follow them: `default,after:partition,collective-matmul,after:dce,overlap`. The
        step `none` stands for no pass.
        Raises `PipelineError` that names the unknown pass, option or position and lists the known
        ones. Former names of passes cause a `DeprecationWarning`.
        """
        if not isinstance(text, str):
            raise PipelineError(f"a pipeline is a string, got {text!r}")
        # An extension that cannot be loaded is an error even if no step has an unknown name.
        load_environment_plugins()
        passes: list[Pass] = []
        position = at = 0
        text = text.strip()
        while at < len(text):
            match = _STEP_PATTERN.match(text, at)
            if match is None:
                raise PipelineError(
                    f"cannot read the pipeline at {text[at:]!r}; "
                    "write it as pass,pass{option=value,option=value}"
                )
            side, anchor, name, options = match.groups()
            at = match.end()
            if side:
                position = _position_of(current_name(anchor), passes, side)
                continue
            added: tuple[Pass, ...]
            if name == EMPTY_STEP and not options:
                added = ()
            elif name == DEFAULT_STEP and not options:
                added = (cls.parse(DEFAULT_PIPELINE) if default is None else default).passes
            else:
                added = (_build_pass(current_name(name), options or ""),)
            passes[position:position] = added
            position += len(added)
        return cls(tuple(passes))

    def __call__(self, module: Module, watch: PassObserver | None = None) -> Module:
        """Run every pass in turn; `watch` observes the module before and after each.

        A pass that decides between programs may run later passes on them in a pipeline of its own.
        This pipeline then uses their results for the chosen program.
        Raises `PipelineError` that names the pass which returned no module or an invalid one. The
        results of passes of other packages and files are always verified; those of the passes of
        shardir if a later pass fails.
        """
        given = module
        with paused_garbage_collection(), _nested_results() as (nested, enclosing):
            for number, step in enumerate(self.passes):
                before, start = module, perf_counter()
                try:
                    known = _find_result(step, before, nested)
                    if known is None:
                        nested.clear()  # The following passes run on another module.
                        known = _run_pass(step, before)
                    module = known
                    if enclosing is not None:
                        enclosing.append((step, before, module))
                    if watch:
                        watch(step, before, module, perf_counter() - start)
                except Exception as error:
                    if find_fault(before) is not None:
                        Pipeline(self.passes[:number]).verify_results(given)
                    error.add_note(f"while running {str(step)!r} of the pipeline {str(self)!r}")
                    raise
        return module

    def verify_results(self, module: Module) -> None:
        """Run every pass; raise `PipelineError` that names the first one whose result is invalid.

        An invalid `module` is no result of a pass, so that this raises no error for it.
        """
        if find_fault(module) is None:
            self(module, verify_result)

    def through(self, stage: str) -> Self:
        """Return the pipeline up to and including the last pass called `stage`."""
        names = [step.name for step in self.passes]
        if isinstance(stage, str):
            stage = current_name(stage)
        if not isinstance(stage, str) or stage not in names:
            raise PipelineError(
                f"the pipeline {str(self)!r} has no pass called {stage!r}; "
                f"it has {', '.join(names) or 'none'}"
            )
        last = len(names) - names[::-1].index(stage)
        return type(self)(self.passes[:last])

    def __str__(self) -> str:
        return ",".join(map(str, self.passes))


PassResult = tuple[Pass, Module, Module]
"""A pass, and the module before and after it."""
_results: ContextVar[list[PassResult] | None] = ContextVar("results", default=None)
"""The results of the pipelines that the current pass runs."""


@contextmanager
def _nested_results() -> Iterator[tuple[list[PassResult], list[PassResult] | None]]:
    """Yield the list to which pipelines in this context add their results, and that of the
    enclosing pipeline, `None` without one."""
    nested: list[PassResult] = []
    enclosing = _results.get()
    token = _results.set(nested)
    try:
        yield nested, enclosing
    finally:
        _results.reset(token)


def _find_result(step: Pass, module: Module, known: Sequence[PassResult]) -> Module | None:
    return next((new for each, old, new in known if old is module and each == step), None)


def _run_pass(step: Pass, module: Module) -> Module:
    """Return the result of a pass; raise `PipelineError` if it is not a module."""
    try:
        result = step(module)
    except ShardirError:
        raise
    except Exception as error:
        raise PipelineError(
            f"pass {step.name!r} raised {type(error).__name__}{exception_place(error)}: {error}"
        ) from error
    if not isinstance(result, Module):
        raise PipelineError(
            f"pass {step.name!r} returned a {type(result).__name__}, and a pass returns a module"
        )
    if PASSES.origin(step.name) != OWN_ORIGIN:
        if module.functions and not result.functions:
            raise PipelineError(f"pass {step.name!r} returned a module without a function")
        verify_result(step, module, result)
    return result


def verify_result(step: Pass, before: Module, after: Module, seconds: float = 0.0) -> None:
    """Raise `PipelineError` that names the pass if its result is invalid; a `PassObserver`."""
    fault = find_fault(after)
    if fault is not None:
        raise PipelineError(f"pass {step.name!r} returned an invalid module: {fault}")


def find_fault(module: Module) -> str | None:
    """Return the faults that the verifier finds in a module, or `None`."""
    try:
        verifier.verify(module)
    except VerifyError as error:
        return str(error)
    except Exception as error:  # A module of other objects than those of the IR.
        return f"the verifier raised {type(error).__name__}{exception_place(error)}: {error}"
    return None


_PASS_NAME = re.compile(r"[\w-]+")
_STEP_PATTERN = re.compile(r"(?:(before|after):([\w-]+)|([\w-]+)(?:\{([^{}]*)\})?)\s*(?:,\s*|$)")
_OPTION_PARSERS: dict[object, Callable[[str], object]] = {
    str: str,
    int: int,
    float: float,
    bool: {"true": True, "false": False}.__getitem__,
}


def _position_of(name: str, passes: Sequence[Pass], side: str) -> int:
    """Return the index before the first pass called `name`, or after the last one."""
    names = [step.name for step in passes]
    if name not in names:
        hint = (
            f"the earlier steps are {', '.join(names)}"
            if names
            else f"write the step default before it: default,{side}:{name}"
        )
        raise PipelineError(
            f"{side}:{name} is not a position: no earlier step is called {name!r}; {hint}"
        )
    return names.index(name) if side == "before" else len(names) - names[::-1].index(name)


def format_option(value: object) -> str:
    """Return the value of an option as a pipeline states it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def option_types(kind: type[Pass]) -> dict[str, object]:
    """Return the types of the options of a pass."""
    # A module with `from __future__ import annotations` states the types as text.
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _build_pass(name: str, options: str) -> Pass:
    kind = PASSES.find(name)
    if kind is None:
        raise PipelineError(_unknown_pass_message(name, options))
    if isabstract(kind):
        raise PipelineError(
            f"pass {name!r} does not define __call__; define it as a function from a module to a "
            "module"
        )
    # Types of options are found only if there are options: each compilation builds all passes.
    return kind(**_parse_options(kind, name, options)) if options.strip() else kind()


def _parse_options(kind: type[Pass], name: str, options: str) -> dict[str, object]:
    types = option_types(kind)
    chosen: dict[str, object] = {}
    for option in filter(None, map(str.strip, options.split(","))):
        key, _, text = option.partition("=")
        if key not in types:
            options_text = ", ".join(types) or "none"
            hint = (
                "; decorate the class with @dataclass(frozen=True) to make its fields options"
                if key in get_annotations(kind)
                else ""
            )
            raise PipelineError(f"pass {name!r} has no option {key!r}; it has {options_text}{hint}")
        if key in chosen:
            raise PipelineError(f"the pipeline states option {key!r} of pass {name!r} twice")
        allowed = kind.choices.get(key)
        if allowed and text not in allowed:
            raise PipelineError(
                f"option {key!r} of pass {name!r} cannot be {text!r}; it is one of "
                f"{', '.join(filter(None, allowed))}"
            )
        try:
            chosen[key] = _OPTION_PARSERS[types[key]](text)
        except (ValueError, KeyError):
            raise PipelineError(
                f"option {key!r} of pass {name!r} cannot be {text!r}; "
                f"its type is {getattr(types[key], '__name__', types[key])}"
            ) from None
    return chosen


def _unknown_pass_message(name: str, options: str) -> str:
    if name == DEFAULT_STEP:
        return (
            f"the default pipeline has no options, got {options!r}; write the pass with its "
            "options before or after the step default"
        )
    if name == EMPTY_STEP:
        return f"the step none stands for no pass and has no options, got {options!r}"
    names = PASSES.names()
    hint = suggest_name(name, names) or (
        "--load mypass.py or shardir.extend.load_plugin loads the passes of a file; the passes "
        f"are {', '.join(names)}"
    )
    return f"no pass is called {name!r}; {hint}"


def combine_observers(*each: PassObserver) -> PassObserver | None:
    """Return an observer that calls all of these in order; `None` without any."""
    if not each:
        return None

    def all_of_them(step: Pass, before: Module, after: Module, seconds: float) -> None:
        for watch in each:
            watch(step, before, after, seconds)

    return all_of_them

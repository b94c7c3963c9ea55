"""Assertions about the collectives of programs, the results of sharded programs, and passes.

A program is a function with its arguments, the result of `jit(f).lower(...)` or `.compile()`, a
module of the IR or its text. All functions raise subclasses of `AssertionError` with messages that
state the difference and its location.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardir.cost.communication import (
    PIPELINE_SEND,
    Collective,
    format_axes,
    list_collectives,
)
from shardir.display.byte_sizes import show_bytes
from shardir.errors import ShardirError, os_error_reason, suggest_name
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.numpy_conversion import to_numpy
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.dispatch.programs.runnable import default_pipeline
from shardir.frontend.dispatch.stages.stages import Compiled, Lowered
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.stories.pipeline_check import (
    parse_valid_program,
    result_difference,
    run_pipeline,
    text_difference,
)
from shardir.frontend.stories.story_syntax import UPDATE_VARIABLE, split_sections
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.parameters import leaf_labels
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import (
    are_close,
    is_stable,
    relative_distance,
    tolerance_of,
)
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.ops.communication.async_collectives import START_OPS
from shardir.text.parser import parse

AnyProgram = Callable[..., Any] | Lowered | Compiled | Module | str


class CommunicationError(ShardirError, AssertionError):
    """A program runs other collectives than expected."""


class DifferentResultsError(ShardirError, AssertionError):
    """A sharded program, or the program that a pass makes, computes other results."""


class DifferentProgramError(ShardirError, AssertionError):
    """A pipeline makes another program than expected."""


@traceback_boundary
def collectives(program: AnyProgram, args: Sequence[object] = ()) -> list[Collective]:
    """Return every collective of one run of a program, in program order.

    Each has its `kind`, `axes`, `group_size`, the bytes of its result on one device (`nbytes`), the
    bytes a device sends (`sent`), and the number of executions in one run (`executions`: multiplied
    by loop counts; `None` in a `while`), with the user's line and its `why`. `args` are the
    positional arguments of a function, arrays or `ShapeDtypeStruct`s; nothing is run.
    """
    if isinstance(program, Compiled):
        return program.collectives()
    if isinstance(program, str | Module):
        return list_collectives(_partitioned_module(program))
    return _lower_program(program, args).compile().collectives()


@traceback_boundary
def assert_collectives(program: AnyProgram, args: Sequence[object] = (), **expected: int) -> None:
    """Check the number of collectives of each kind in one run.

    `all_reduce=2, all_gather=0` names kinds with underscores; kinds that are not named are not
    checked, and without any name there must be none. Counts are multiplied by loop counts; a
    collective in a `while` counts once. The stages of a pipeline communicate with collectives of
    the kind `send`. Raises `CommunicationError` that lists the collectives.
    """
    known = [_python_name(spec.name) for spec in START_OPS] + [PIPELINE_SEND]
    for name in expected:
        if name not in known:
            raise ArgumentError(
                with_location(
                    f"no collective is named {name!r}; "
                    + (suggest_name(name, known) or f"there are {', '.join(known)}")
                )
            )
    found = collectives(program, args)
    counts = dict.fromkeys(known, 0)
    for each in found:
        counts[_python_name(each.kind)] += each.counted_executions
    expected_counts = expected or dict.fromkeys(counts, 0)
    wrong = [kind for kind, count in expected_counts.items() if counts[kind] != count]
    if not wrong:
        return
    differ = ", ".join(
        f"{counts[kind]} {kind} instead of {expected_counts[kind]}" for kind in wrong
    )
    lines = [_describe_collective(each) for each in found if _python_name(each.kind) in wrong]
    raise CommunicationError("\n".join([f"{_program_name(program)} runs {differ}", *lines]))


@traceback_boundary
def assert_equivalent(
    program: AnyProgram,
    args: Sequence[object] | None = None,
    shardings: object = None,
    *,
    tolerance: float | None = None,
) -> None:
    """Check that a program computes the same results on its devices as the unsharded program.

    `args` are the positional arguments of a function; a module or text gets random ones if they are
    `None`. `shardings` places them: a pytree prefix of shardings, as for `device_put`. The
    reference interpreter runs the unsharded program. Results may differ by `tolerance`, relative to
    the largest element: by default the rounding error of the narrowest type in the program, and 0
    for integers. Raises `DifferentResultsError` that names the first result with a larger
    difference.
    """
    if isinstance(program, str | Module):
        _check_module(_parse_program(program), args, tolerance)
        return
    if args is None:
        raise ArgumentError(with_location("assert_equivalent of a function needs its arguments"))
    if not isinstance(args, tuple | list):
        raise ArgumentError(with_location(f"args of assert_equivalent are a tuple, got {args!r}"))
    placed = tuple(args) if shardings is None else device_put(tuple(args), shardings)
    lowered = _lower_program(program, placed)
    module = lowered.module
    leaves = [*tree.leaves(placed), *lowered.captured]
    whole = [
        _global_elements(leaf).astype(param.type.numpy, copy=False)
        for leaf, param in zip(leaves, module.main.body.params, strict=True)
    ]
    want = run(module, whole)
    compiled = program if isinstance(program, Compiled) else lowered.compile()
    result = compiled(*placed)
    got = [_global_elements(leaf) for leaf in tree.leaves(result)]
    _compare(
        module, whole, want, got, tolerance, leaf_labels("result", result), _program_name(program)
    )


@traceback_boundary
def assert_pass(before: str, pipeline: str, after: str | Path) -> None:
    """Check that a pipeline makes the program `after` of the program `before`.

    The programs are IR text, and are equal if they print the same. `after` may be the path of a
    file with the text; `pytest --update-stories`, or the environment variable `SHARDIR_UPDATE=1`,
    writes the new program into the file if it computes the same results. Both programs must compute
    the same results for random arguments, with the tolerance of `assert_equivalent`. Raises
    `DifferentProgramError` with a unified diff, `DifferentResultsError`, `ParseError`, or the error
    of a pass.
    """
    given = _parse_with_function(before, "<before>")
    made = run_pipeline(pipeline, given)
    wrong = result_difference(given, made)
    if isinstance(after, Path):
        if os.environ.get(UPDATE_VARIABLE) == "1" and not wrong:
            _write_golden_file(after, made)
        expected = _parse_with_function(_read_golden_file(after), str(after))
    else:
        expected = _parse_with_function(after, "<after>")
    if diff := text_difference(expected, made, "after", "result"):
        results = f"other results ({wrong})" if wrong else "the same results"
        raise DifferentProgramError(
            f"{pipeline!r} makes another program than `after`; `before` and the new program "
            f"compute {results}\n{diff}{_describe_update(after)}"
        )
    if wrong:
        raise DifferentResultsError(
            f"{pipeline!r} makes a program that computes other results than `before`: {wrong}"
        )


def _describe_update(after: str | Path) -> str:
    if not isinstance(after, Path):
        return ""
    return f"\nIf the new program is right, write it to {after}: pytest --update-stories"


def _read_golden_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = os_error_reason(error)
        raise ArgumentError(
            with_location(
                f"cannot read {str(path)!r}: {reason}; pytest --update-stories writes the file"
            )
        ) from None


def _write_golden_file(path: Path, module: Module) -> None:
    """Write a program if the file has another one; comments above the program stay."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    text = f"{split_sections(old)[0].comments}{module}"
    if text != old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _parse_with_function(text: str, name: str) -> Module:
    module = parse_valid_program(text, name)
    if not module.functions:
        raise ArgumentError(with_location(f"a program has a function, and {name} has none"))
    return module


def _global_elements(leaf: object) -> Any:
    """Return the elements of a global array in the form that the interpreter accepts."""
    if isinstance(leaf, Array):
        return leaf.read()
    return to_numpy(leaf)


def _check_module(module: Module, args: Sequence[object] | None, tolerance: float | None) -> None:
    whole = random_arguments(module) if args is None else [np.asarray(x) for x in args]
    want = run(module, whole)
    got = run(_partitioned_module(module), whole)
    labels = [f"result {i}" for i in range(len(want))]
    _compare(module, whole, want, got, tolerance, labels, _program_name(module))


def _compare(
    module: Module,
    args: Sequence[PyTree],
    want: Sequence[Any],
    got: Sequence[Any],
    tolerance: float | None,
    labels: Sequence[str],
    name: str,
) -> None:
    allowed = tolerance_of(module) if tolerance is None else tolerance
    if are_close(want, got, allowed):
        return
    if tolerance is None and not is_stable(module, args, want, allowed):
        return
    gaps = [relative_distance(a, b, allowed) for a, b in zip(want, got, strict=True)]
    first = next(i for i, gap in enumerate(gaps) if gap > 1)
    off = f"by {gaps[first] * allowed:.3g}, " if np.isfinite(gaps[first] * allowed) else ""
    raise DifferentResultsError(
        f"{labels[first]} of {name} differs from the result of the unsharded program "
        f"({off}{allowed:.3g} is allowed); find the pass with "
        "shardir.config.update('verify', True)"
    )


def _partitioned_module(program: str | Module) -> Module:
    """Return the program of each device."""
    module = _parse_program(program)
    return module if module.main.spmd else default_pipeline()(module)


def _parse_program(program: str | Module) -> Module:
    module = parse(program, "<text>") if isinstance(program, str) else program
    if not module.functions:
        raise ArgumentError(with_location("a program has a function, and this one has none"))
    return module


def _lower_program(program: AnyProgram, args: Sequence[object]) -> Lowered:
    if isinstance(program, Compiled):
        return program.lowered
    if isinstance(program, Lowered):
        return program
    if not callable(program):
        raise ArgumentError(
            with_location(f"a program is a function, a module or its text, got {program!r}")
        )
    if not isinstance(args, (tuple, list)):
        raise ArgumentError(with_location(f"args of a program are a tuple, got {brief(args)}"))
    function = program if isinstance(program, JitFunction) else jit(program)
    return function.lower(*args)


def _program_name(program: AnyProgram) -> str:
    if isinstance(program, str | Module):
        return f"@{_parse_program(program).main.name}"
    if isinstance(program, Lowered | Compiled):
        return f"@{program.module.main.name}"
    return getattr(program, "__name__", repr(program))


def _describe_collective(each: Collective) -> str:
    times = {None: " in a while", 1: ""}.get(each.executions, f", {each.executions} times")
    place = f" ({each.loc})" if each.loc else ""
    return (
        f"  {each.kind} over {format_axes(each)} of {show_bytes(each.nbytes)}{times}: "
        f"{each.why}{place}"
    )


def _python_name(kind: str) -> str:
    return kind.replace("-", "_")

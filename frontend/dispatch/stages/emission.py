"""Emission of a traced program, or a module of a file, as the source files of a target.

A module that is partitioned already is used unchanged; any other one runs through the default
passes. The passes of the target follow. For a self-test the emission includes arguments, random or
from the user, and the results of the reference interpreter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shardir.backends.emission import Emission, EmissionError, ProgramValue, Samples, get_target
from shardir.backends.key_words import view_as_words
from shardir.errors import TimeLimitError, count_noun, os_error_reason
from shardir.frontend.pipelines.pipeline_emission import prepare_pipelines
from shardir.frontend.pytree_types import PyTree
from shardir.interpret.interpreter import run
from shardir.interpret.machine_limits import check_runnable
from shardir.interpret.random_arguments import parameter_types, random_arguments
from shardir.ir.dtypes import NumpyArray
from shardir.ir.module import Module
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.verify.verifier import verify

Array = NumpyArray

MAX_SELFTEST_SECONDS = 60.0
"""Time limit of the reference interpreter for the results of a self-test, in seconds."""


@dataclass(frozen=True)
class BoundaryNames:
    """The names of a program's arguments and results in the user's program.

    `donated` are the donated arguments. `values` are the captured arrays, which are the last
    arguments.
    """

    arguments: tuple[str, ...]
    results: tuple[str, ...]
    donated: frozenset[int] = frozenset()
    values: tuple[NumpyArray, ...] = ()

    def apply(self, emission: Emission) -> Emission:
        """Return the emission with these names."""
        visible = len(emission.arguments) - len(self.values)
        shown = [
            replace(argument, label=self.arguments[i], donated=i in self.donated)
            for i, argument in enumerate(emission.arguments[:visible])
        ]
        hidden = [
            replace(argument, value=np.asarray(value))
            for argument, value in zip(emission.arguments[visible:], self.values, strict=True)
        ]
        results = [
            replace(result, label=label)
            for result, label in zip(emission.results, self.results, strict=True)
        ]
        return replace(emission, arguments=(*shown, *hidden), results=tuple(results))


def _without_device_ids(module: Module) -> Module:
    """Return the module without the device ids of its meshes."""
    meshes = tuple(replace(mesh, device_ids=None) if mesh.axes else mesh for mesh in module.meshes)
    return replace(module, meshes=meshes)


def make_emission(
    module: Module,
    target: str,
    naming: BoundaryNames | None = None,
    pipeline: Pipeline | None = None,
    samples: bool = False,
    seed: int = 0,
    arguments: Sequence[Array] | None = None,
    seconds: float = MAX_SELFTEST_SECONDS,
) -> Emission:
    """Return the input of a target for the main function of `module`.

    `pipeline` partitions the module if it is not partitioned. `samples` adds global arguments,
    `arguments` or random ones from `seed`, and their results. Raises `EmissionError` if the
    reference interpreter does not compute these within `seconds`.
    """
    chosen, parted = get_target(target), module
    if module.main.spmd is None and (module.meshes or pipeline is not None):
        if chosen.emits_pipelines:
            parted = prepare_pipelines(module, chosen.pipeline)
        parted = (pipeline or Pipeline.parse(DEFAULT_PIPELINE))(parted)
    parted = _without_device_ids(Pipeline.parse(chosen.pipeline)(parted))
    verify(parted)
    emission = Emission.of(parted)
    if naming is not None:
        emission = naming.apply(emission)
    if not samples:
        return _with_key_words(emission)
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise EmissionError(f"the seed of arguments is an integer of at least 0, got {seed!r}")
    if not seconds > 0:
        raise EmissionError(f"a self-test takes a positive number of seconds, got {seconds}")
    check_runnable(module)
    given = _selftest_arguments(module, emission.arguments, seed, arguments)
    return _with_key_words(replace(emission, samples=_selftest_samples(module, given, seconds)))


def _with_key_words(emission: Emission) -> Emission:
    """Return the emission with keys of four words in its arrays as the program takes them."""
    arguments = tuple(
        each if each.value is None else replace(each, value=view_as_words(each.value))
        for each in emission.arguments
    )
    samples = emission.samples
    if samples is not None:
        given, found = (
            tuple(map(view_as_words, arrays)) for arrays in (samples.arguments, samples.results)
        )
        samples = Samples(given, found)
    return replace(emission, arguments=arguments, samples=samples)


def write_files(
    emission: Emission, target: str, directory: str | Path, options: Mapping[str, PyTree]
) -> list[Path]:
    """Write a program's files into `directory`, which is made if necessary; return their paths."""
    chosen = get_target(target)
    stated = {name: _option_text(value) for name, value in options.items()}
    chosen.check_options(stated)
    if not isinstance(directory, (str, Path)):
        raise EmissionError(
            f"programs are written into a folder, given as a path, got {directory!r}"
        )
    files = chosen.emit(emission, stated)
    paths = []
    for name, content in files.items():
        path = Path(directory) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(content, encoding="utf-8")
        except (OSError, ValueError) as error:  # An invalid path raises ValueError.
            reason = os_error_reason(error)
            raise EmissionError(f"cannot write {str(path)!r}: {reason}") from None
        paths.append(path)
    return paths


def _selftest_arguments(
    module: Module,
    boundaries: Sequence[ProgramValue],
    seed: int,
    chosen: Sequence[Array] | None,
) -> list[Array]:
    """Return the global arguments of a self-test; captured arrays keep their values."""
    if chosen is None:
        drawn = random_arguments(module, seed)
    else:
        hidden = [each.value for each in boundaries if each.value is not None]
        drawn = [*chosen, *hidden]
        types = parameter_types(module)
        if len(drawn) != len(types):
            raise EmissionError(
                f"@{module.main.name} takes {count_noun(len(types) - len(hidden), 'argument')}, "
                "got "
                f"{len(chosen)} for its self-test"
            )
        for each, array, type in zip(boundaries, drawn, types, strict=True):
            if array.shape != type.shape or array.dtype != type.numpy:
                raise EmissionError(
                    f"argument {each.label!r} is {type}, got {array.dtype}{list(array.shape)} for "
                    "the self-test"
                )
    return [
        array if boundary.value is None else boundary.value
        for array, boundary in zip(drawn, boundaries, strict=True)
    ]


def _selftest_samples(module: Module, given: Sequence[Array], seconds: float) -> Samples:
    try:
        results = run(module, given, seconds=seconds)
    except TimeLimitError as error:
        raise EmissionError(
            f"the reference interpreter does not finish the self-test of @{module.main.name}: "
            f"{error}; pass arguments= for which it ends, or more seconds as selftest_seconds="
        ) from None
    return Samples(tuple(given), tuple(results))


def _option_text(value: object) -> str:
    """Return an option as text, with Booleans in lower case as on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)

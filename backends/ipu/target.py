"""The target "ipu": its pipeline, options and files."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import numpy as np

from shardir.backends.emission import Emission, EmissionError, Target
from shardir.backends.ipu.codegen.expressions import MAX_PLACEHOLDERS
from shardir.backends.ipu.prepare.downcast import downcast_emission, parse_casts
from shardir.backends.ipu.prepare.resource_checks import (
    TILE_BYTES,
    TILES_PER_IPU,
    WARNED_TILE_FRACTION,
    check_memory,
    check_reduced,
    check_replicas,
    check_streams,
    check_types,
    estimate_memory,
)
from shardir.backends.ipu.prepare.rewrite_types import rewrite_types
from shardir.backends.ipu.program import file_name, port_names, write_program
from shardir.caller_warnings import warn_caller
from shardir.ir.types import NumpyArray, TensorType
from shardir.ops.random.threefry import split_words

Array = NumpyArray

RUNNER_FOLDER = Path(__file__).parent / "host_model" / "runner"
"""The folder of the headers that every program includes."""
CHECK_SCRIPT = Path(__file__).parent / "check_results.py"
"""The script that compares results with samples; it needs only NumPy."""
OPTION_VALUES = {"strided": ("ring", "gcl"), "nan": ("kept", "device")}
"""The values of options, the default first."""


class MemoryWarning(UserWarning):
    """Warns that a program's values fill more than half of a tile's memory."""


class IPU(Target):
    """Emits `TITLE.cpp`, and the headers that every such program includes."""

    name: ClassVar[str] = "ipu"
    pipeline: ClassVar[str] = (
        f"inline,uniform-control-flow,cse,dce,"
        f"fuse{{most_operands={MAX_PLACEHOLDERS},reductions=false,without=bitcast}}"
    )
    options: ClassVar[Mapping[str, str]] = {
        "downcast": "element types to replace, such as f64:f32,i64:i32,bf16:f16",
        "nan": "maximum or minimum of elements with NaN: kept (NaN) or device (another element, "
        "which is faster)",
        "strided": "how replicas that are not consecutive exchange data: ring "
        "(CrossReplicaCopy) or gcl",
    }

    def emit(self, emission: Emission, options: Mapping[str, str]) -> dict[str, str | bytes]:
        """Return the program's text, its data files, and the headers that it includes."""
        self.check_options(options)
        cast = downcast_emission(emission, parse_casts(options.get("downcast", "")))
        return {
            file_name(emission): program_text(emission, options),
            **array_files(cast),
            **{h.name: h.read_text(encoding="utf-8") for h in sorted(RUNNER_FOLDER.glob("*.hpp"))},
        }


def array_files(emission: Emission) -> dict[str, bytes | str]:
    """Return the arrays of a program: captured ones, and its samples with a script to compare."""
    inputs, outputs = port_names(emission)
    files: dict[str, bytes | str] = {}
    given = emission.samples.arguments if emission.samples else [None] * len(inputs)
    for name, boundary, sample in zip(inputs, emission.arguments, given, strict=True):
        array = sample if boundary.value is None else boundary.value
        if array is not None:
            files[f"arguments/{name}.npy"] = _npy(array, boundary.unsharded_type)
    if emission.samples:
        for name, boundary, array in zip(
            outputs, emission.results, emission.samples.results, strict=True
        ):
            files[f"expected/{name}.npy"] = _npy(array, boundary.unsharded_type)
        files["check.py"] = CHECK_SCRIPT.read_text(encoding="utf-8")
    return files


def _npy(array: Array, type: TensorType) -> bytes:
    """Return the `.npy` file of an array as the program reads it: keys as two words each."""
    out = BytesIO()
    held = (
        np.stack(split_words(array), -1) if type.dtype == "key" else np.asarray(array, type.numpy)
    )
    np.save(out, held)
    return out.getvalue()


def program_text(emission: Emission, options: Mapping[str, str]) -> str:
    """Return the text of the program alone; raise `EmissionError` for what IPUs cannot do."""
    strided, nan = _read_option(options, "strided"), _read_option(options, "nan")
    emission = rewrite_types(downcast_emission(emission, parse_casts(options.get("downcast", ""))))
    check_replicas(emission)
    check_reduced(emission)
    check_types(emission)
    check_streams(emission)
    memory = estimate_memory(emission)
    check_memory(memory)
    if memory.tile_fraction > WARNED_TILE_FRACTION:
        warn_caller(
            f"the values of {emission.title!r} take {memory.tile_bytes} of the {TILE_BYTES} "
            "bytes of "
            f"each of {TILES_PER_IPU} tiles ({memory.tile_fraction:.0%}); its code needs memory "
            "too",
            MemoryWarning,
        )
    return write_program(emission, memory, strided, keeps_nan=nan == "kept")


def _read_option(options: Mapping[str, str], name: str) -> str:
    """Return the value of an option with a fixed set of values."""
    chosen = options.get(name, OPTION_VALUES[name][0])
    if chosen not in OPTION_VALUES[name]:
        raise EmissionError(f"{name}={chosen} is none of {', '.join(OPTION_VALUES[name])}")
    return chosen


TARGET = IPU()

"""The target "ipu": its passes, its options, its files."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from shardir.backends.emission import Emission, EmissionError, Target
from shardir.backends.ipu.checks import (
    TILE_BYTES,
    TILES,
    WARNING,
    check_memory,
    check_replicas,
    check_streams,
    check_types,
    memory_of,
)
from shardir.backends.ipu.downcast import downcast, parse_casts
from shardir.backends.ipu.expressions import PLACEHOLDERS
from shardir.backends.ipu.program import file_name, write_program

RUNNER = Path(__file__).parent / "host_model" / "runner"
"""The headers that every program includes."""
STRIDED = ("ring", "gcl")


class MemoryWarning(UserWarning):
    """A program whose values fill more than half of what a tile has."""


class Ipu(Target):
    """Writes `TITLE.cpp`, and beside it the headers that every such program includes."""

    name: ClassVar[str] = "ipu"
    pipeline: ClassVar[str] = (
        f"inline,cse,dce,fuse{{most_operands={PLACEHOLDERS},reductions=false}}"
    )
    options: ClassVar[Mapping[str, str]] = {
        "downcast": "element types to replace, such as f64:f32,i64:i32,bf16:f16",
        "strided": "how replicas exchange that do not follow one another: ring (CrossReplicaCopy) "
        "or gcl",
    }

    def emit(self, emission: Emission, options: Mapping[str, str]) -> dict[str, str | bytes]:
        """The program's text and the headers that it includes."""
        self.check_options(options)
        strided = options.get("strided", STRIDED[0])
        if strided not in STRIDED:
            raise EmissionError(f"strided={strided} is none of {', '.join(STRIDED)}")
        return {
            file_name(emission): program_text(emission, options),
            **{h.name: h.read_text(encoding="utf-8") for h in sorted(RUNNER.glob("*.hpp"))},
        }


def program_text(emission: Emission, options: Mapping[str, str]) -> str:
    """The text of the program alone; raises `EmissionError` for what IPUs cannot do."""
    emission = downcast(emission, parse_casts(options.get("downcast", "")))
    check_replicas(emission)
    check_types(emission)
    check_streams(emission)
    memory = memory_of(emission)
    check_memory(memory)
    if memory.share > WARNING:
        warnings.warn(
            f"the values of {emission.title!r} take {memory.tile} of the {TILE_BYTES} bytes of "
            f"each of {TILES} tiles ({memory.share:.0%}); its code needs memory too",
            MemoryWarning,
            stacklevel=2,
        )
    return write_program(emission, memory, options.get("strided", STRIDED[0]))


TARGET = Ipu()

"""The target `gpu`: one Python program of torch and Triton, and the files it runs on."""

from collections.abc import Mapping
from typing import ClassVar

from shardir.backends.emission import Emission, EmissionError, Target
from shardir.backends.gpu.kernels import WITHOUT
from shardir.backends.gpu.names import file_name
from shardir.backends.gpu.program import PRECISIONS, write_program
from shardir.backends.gpu.vendoring import data_files, runtime_files


class GPU(Target):
    """Writes for GPUs: a Triton kernel for each group of operations, torch for the rest."""

    name: ClassVar[str] = "gpu"
    pipeline: ClassVar[str] = (
        f"inline,combine-collectives,cse,simplify,fold-transposes,cse,dce,fuse{{without={WITHOUT}}}"
    )
    options: ClassVar[Mapping[str, str]] = {
        "precision": f"how f32 is multiplied: {' or '.join(PRECISIONS)}"
    }

    def emit(self, emission: Emission, options: Mapping[str, str]) -> dict[str, str | bytes]:
        self.check_options(options)
        precision = options.get("precision", PRECISIONS[0])
        if precision not in PRECISIONS:
            raise EmissionError(
                f"precision={precision!r} is none of {', '.join(PRECISIONS)}, the ways to multiply "
                "f32 on GPUs"
            )
        text, arrays = write_program(emission, precision)
        return {
            file_name(emission.title): text,
            **arrays,
            **runtime_files(),
            **data_files(emission),
        }


TARGET = GPU()

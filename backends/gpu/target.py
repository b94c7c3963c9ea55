"""The target `gpu`: one Python program for torch and Triton, and its runtime files."""

from collections.abc import Mapping
from typing import ClassVar

from shardir.backends.emission import Emission, EmissionError, Target
from shardir.backends.gpu.identifiers import make_file_name
from shardir.backends.gpu.kernels import UNFUSED_OPERATIONS
from shardir.backends.gpu.program_text import PRECISIONS, write_program
from shardir.backends.gpu.runtime_files import data_files, runtime_files


class GPU(Target):
    """Emits programs for GPUs: Triton kernels of groups of operations, torch for all others."""

    name: ClassVar[str] = "gpu"
    pipeline: ClassVar[str] = (
        "expand-rbg-keys,inline,combine-collectives,widen-small-dtypes,cse,simplify,"
        "fold-transposes,cse,dce,"
        f"fuse-products{{convert_inside=true,without={UNFUSED_OPERATIONS}}},dce,fuse{{without={UNFUSED_OPERATIONS}}}"
    )
    emits_pipelines: ClassVar[bool] = True
    options: ClassVar[Mapping[str, str]] = {
        "precision": f"precision of f32 products: {' or '.join(PRECISIONS)}"
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
            make_file_name(emission.title): text,
            **arrays,
            **runtime_files(),
            **data_files(emission),
        }


TARGET = GPU()

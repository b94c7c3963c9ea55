"""Kernels give correct results on all instruction sets below the host's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardir.backends.cpu.codegen.target import (
    ISAS,
    VECTOR_BYTES,
    architecture,
    host_machine,
)

ROOT = Path(__file__).parents[4]
FOLDER = "tests/backends/cpu"
DEFAULT_TESTS = [
    "kernels/gemm/test_dot.py::test_products_of_all_element_types_match_the_reference",
    "kernels/conv/test_convolution.py::test_long_filters_ignore_elements_outside_of_their_window",
    "kernels/conv/test_padded_nhwc.py::test_elements_outside_of_an_image_are_not_read",
    "kernels/elementwise/test_elementwise_loops.py::test_in_place_operations_are_correct",
    "kernels/elementwise/test_reduction.py::test_rows_are_prefetched_during_column_sums",
    "kernels/data_movement/test_copy.py::test_transposing_copies_are_correct",
    "kernels/selection/test_mask_compaction.py",
    "kernels/scan/test_cumulative.py::test_vectorized_integer_scans_equal_the_reference",
    "kernels/math/test_portable_paths.py::test_all_f16_numbers_are_converted_to_f32",
]
"""The fastest tests of each kind of kernel."""
LONG_TESTS = [
    "kernels/gemm/test_dot.py::test_narrow_products_do_not_pack",
    "kernels/gemm/test_dot.py::test_remaining_vectors_of_columns_match_the_reference",
    "kernels/conv/test_nchw_layout.py::test_elements_outside_of_an_image_are_not_read",
    "kernels/elementwise/test_random_groups.py",
    "kernels/elementwise/test_reduction.py::test_streaming_kernels_give_the_same_bits",
    "kernels/linalg/test_qr.py",
    "kernels/selection/test_argminmax.py",
    "kernels/sort/test_sort_rules.py::test_lines_of_every_length_are_sorted",
    "kernels/fft/test_fft_rows.py::test_transforms_of_short_rows_are_accurate",
    "kernels/math/test_unary_functions.py",
    "kernels/math/test_portable_paths.py",
]
"""Additional tests for `--long`."""


def narrower_instruction_sets() -> list[str]:
    """Return the instruction sets of x86 below this host's."""
    if architecture(host_machine().triple) != "x86_64":
        return []
    return [isa for isa in ISAS if VECTOR_BYTES[isa] < host_machine().vector_bytes]


@pytest.mark.needs("mpmath")  # The tests of functions import it.
@pytest.mark.sample(2)
@pytest.mark.parametrize("isa", ["sse", "avx2"])
def test_kernels_of_narrower_instruction_sets_pass_their_tests(
    request: pytest.FixtureRequest, isa: str
) -> None:
    if isa not in narrower_instruction_sets():
        pytest.skip(f"{isa} is not below what this host, or SHARDIR_MAX_CPU_ISA, has")
    chosen = [*DEFAULT_TESTS, *(LONG_TESTS if request.config.getoption("--long") else ())]
    tests = [f"{FOLDER}/{each}" for each in chosen]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *tests],
        env=os.environ | {"SHARDIR_MAX_CPU_ISA": isa},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

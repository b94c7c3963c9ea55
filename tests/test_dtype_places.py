"""The tables that need an entry for a new dtype, and the code for single dtypes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardir.backends.cpu.codegen import dtypes as cpu, narrow_floats
from shardir.backends.gpu import dtypes as gpu
from shardir.backends.ipu.codegen.device_types import ELEMENTS, SUPPORTED_REPLACEMENTS
from shardir.frontend.arrays.dlpack import TYPE_CODES
from shardir.frontend.numpy import dtypes as public_dtypes
from shardir.frontend.tracing import promotion
from shardir.ir.dtypes import (
    COMPLEX,
    DTYPE_INFO,
    DTYPES,
    FLOATS,
    INEXACT,
    KEYS,
    NARROW_FLOATS,
    RBG_KEYS,
    REAL_OF,
)
from shardir.stablehlo.reading.types import DTYPE_OF_MLIR

ROOT = Path(__file__).parents[1]
PACKAGES = ("shardir", "passes", "frontend", "backends")

TABLES = {
    "shardir/ir/dtypes.py": "the facts that no target changes",
    "frontend/tracing/promotion.py": "the promotion lattice",
    "frontend/numpy/dtypes.py": "public names: NumPy's namespace",
    "frontend/dtypes.py": "public names: the namespace `shardir.dtypes`",
    "frontend/arrays/dlpack.py": "type codes of DLPack",
    "frontend/numpy/creation/file_io.py": "dtypes that `.npy` files cannot state",
    "frontend/checkpoint/load.py": "the names of dtypes in safetensors",
    "backends/cpu/codegen/narrow_floats.py": "conversions between narrow floats and f32",
    "backends/gpu/dtypes.py": "names that differ between Triton, torch and NumPy",
    "backends/gpu/vendored/arrays.py": "dtypes of programs, which cannot import shardir",
    "backends/ipu/codegen/device_types.py": "the types that an IPU has, and replacements",
}
"""Files that may need an entry for a new dtype, and what they state."""

SPECIAL_CASES = {
    "backends/cpu/codegen/llvm_text.py": "names of LLVM's types, not of dtypes",
    "backends/cpu/codegen/dot_product_instructions.py": "instructions for single dtypes",
    "backends/cpu/codegen/tile_instructions.py": "instructions for single dtypes",
    "backends/cpu/codegen/arm_features.py": "the features with instructions for single dtypes",
    "backends/cpu/kernels/gemm/amx/amx_tile.py": "an instruction that rounds sums to bf16",
    "backends/cpu/kernels/gemm/grouped_steps.py": "the dtypes of these instructions",
    "backends/cpu/kernels/conv/channel_pairs.py": "an instruction that multiplies pairs of bf16",
    "backends/cpu/kernels/fused_products/": "an instruction that multiplies pairs of bf16",
    "backends/gpu/backend.py": "torch's settings of 16-bit accumulators",
    "backends/gpu/program_text.py": "torch's settings of 16-bit accumulators",
    "backends/gpu/vendored/command.py": "torch's settings of 16-bit accumulators",
    "backends/gpu/kernels/conversion.py": "Triton rounds f64 and integers to bf16 twice",
    "backends/gpu/vendored/triton_interpreter.py": "Triton's interpreter truncates f32 to bf16",
    "shardir/_imports/absent_names.py": "absent names of JAX that contain the name of a dtype",
    "shardir/interop/jax_shim/ignored_settings.py": "settings of JAX that name a dtype",
    "frontend/setting_values.py": "names of precisions of JAX",
    "frontend/numpy/tracer_helpers/product_precision.py": "names of precisions of JAX",
    "frontend/numpy/tracer_helpers/dot_algorithms.py": "algorithms of products of JAX",
    "shardir/ops/contraction/product_dtypes.py": "algorithms of products of JAX",
    "frontend/lax/scaled_dot.py": "operands with block scales are scaled in bf16, as in JAX",
    "frontend/profiling/machine_calibration.py": "the dtypes of the products that it measures",
    "backends/gpu/kernels/functions.py": "matrix units multiply f32 as the sum of three bf16",
    "backends/gpu/kernels/fused_products/": "matrix units multiply f32 as the sum of three bf16",
    "backends/ipu/": "f16 is the only narrow float of an IPU; `downcast` replaces all others",
}
"""Files and folders whose algorithm is specific to one dtype, and the reason."""

NAMES = re.compile(r"(?<![a-z0-9])(b?f16|fp16|bfloat16|float16)(?![a-z0-9])")
POSSIBLE_NAMES = re.compile("f16|fp16|float16|bfloat")
"""Parts of all names, some of which are in the source of each file that names a narrow float."""


def _names_a_narrow_float(path: Path) -> bool:
    """Return whether code of the file, without docstrings, names a 16-bit float."""
    source = path.read_text(encoding="utf-8")
    if not POSSIBLE_NAMES.search(source.lower()):
        return False
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in prose and NAMES.search(node.value.replace("_", " ")):
                return True
        elif isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if re.search(r"bf16|bfloat|float16", name.lower()):
                return True
    return False


def _files_that_name_a_narrow_float() -> Iterator[str]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            # `shardir/` has links to the other packages.
            is_linked = path.resolve() != ROOT.resolve() / path.relative_to(ROOT)
            if not is_linked and _names_a_narrow_float(path):
                yield path.relative_to(ROOT).as_posix()


def _entry_of(file: str) -> str | None:
    """Return the listed file or folder that `file` is or is in."""
    listed = (*TABLES, *SPECIAL_CASES)
    exact = [each for each in listed if each == file]
    within = [each for each in listed if each.endswith("/") and file.startswith(each)]
    return next(iter([*exact, *within]), None)


def test_only_the_listed_files_name_a_narrow_float() -> None:
    found = list(_files_that_name_a_narrow_float())
    assert [file for file in found if _entry_of(file) is None] == []
    assert {*TABLES, *SPECIAL_CASES} - {_entry_of(file) for file in found} == set()


def test_the_map_names_every_table() -> None:
    text = (ROOT / "docs/map.md").read_text(encoding="utf-8")
    assert [file for file in (*TABLES, *SPECIAL_CASES) if f"`{file}`" not in text] == []


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_have_a_format(dtype: str) -> None:
    info = DTYPE_INFO[dtype]
    assert (info.specials != "fnu") + info.exponent_bits + info.mantissa_bits == info.bits
    assert info.one_bits == info.bias << info.mantissa_bits


@pytest.mark.parametrize("dtype", INEXACT)
def test_inexact_dtypes_have_a_tolerance(dtype: str) -> None:
    assert DTYPE_INFO[dtype].tolerance > 0


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_dtypes_have_parts(dtype: str) -> None:
    assert 2 * DTYPE_INFO[REAL_OF[dtype]].bits == DTYPE_INFO[dtype].bits


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in ("bool", *KEYS)])
def test_every_dtype_promotes_to_itself(dtype: str) -> None:
    assert promotion.result_type((dtype, False), (dtype, False))[0] == promotion.canonical_dtype(
        dtype
    )


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in KEYS])
def test_every_dtype_has_public_names(dtype: str) -> None:
    numpy = DTYPE_INFO[dtype].numpy
    public = "bool_" if dtype == "bool" else numpy.name
    assert getattr(public_dtypes, public).dtype == numpy
    assert promotion.dtype_of(numpy.name) == promotion.canonical_dtype(dtype)
    assert dtype in DTYPE_OF_MLIR.values()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_types_on_every_target(dtype: str) -> None:
    assert dtype in cpu.REGISTER_TYPES
    assert dtype in cpu.MEMORY_TYPES
    assert dtype in gpu.TORCH_DTYPES or dtype in RBG_KEYS
    assert dtype in gpu.TRITON_TYPES or dtype in (*COMPLEX, *KEYS)


@pytest.mark.parametrize("dtype", NARROW_FLOATS)
def test_narrow_floats_are_converted_everywhere(dtype: str) -> None:
    assert dtype in narrow_floats.CONVERSIONS
    assert dtype in ELEMENTS or dtype in SUPPORTED_REPLACEMENTS


@pytest.mark.parametrize(
    "dtype",
    [
        name
        for name, info in DTYPE_INFO.items()
        if info.is_extension and info.bits == info.memory_bits
    ],
)
def test_extension_dtypes_have_a_code_in_dlpack(dtype: str) -> None:
    assert DTYPE_INFO[dtype].numpy in TYPE_CODES


def test_programs_know_the_same_dtypes() -> None:
    pytest.importorskip("torch")
    from shardir.backends.gpu.vendored import arrays

    assert {name: str(dtype) for name, dtype in arrays.DTYPES.items()} == gpu.TORCH_DTYPES
    assert set(arrays.MAX_RELATIVE_ERROR) == set(INEXACT)

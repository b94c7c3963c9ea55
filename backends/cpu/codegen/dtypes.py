"""The LLVM types of elements in registers and in memory."""

from shardir.ir.dtypes import COMPUTE_DTYPES, DTYPE_INFO, NARROW_FLOATS, REAL_OF, SMALL_DTYPES

_LLVM_FLOATS = {"f32": "float", "f64": "double"}
"""The floats that kernels compute with."""


def _register_type(dtype: str) -> str:
    computed = COMPUTE_DTYPES[REAL_OF.get(dtype, dtype)]
    if dtype in SMALL_DTYPES:
        # Kernels only move them: `widen-small-dtypes` writes all computations in other dtypes.
        return f"i{DTYPE_INFO[dtype].memory_bits}"
    return _LLVM_FLOATS.get(computed) or f"i{DTYPE_INFO[computed].bits}"


REGISTER_TYPES = {dtype: _register_type(dtype) for dtype in DTYPE_INFO} | {"bool": "i1"}
"""The LLVM type of an element in a register; for complex elements that of a part."""
MEMORY_TYPES = {
    **REGISTER_TYPES,
    "bool": "i8",
    **{dtype: f"i{DTYPE_INFO[dtype].bits}" for dtype in NARROW_FLOATS},
}
"""The LLVM type of an element in memory; for complex elements that of a part."""

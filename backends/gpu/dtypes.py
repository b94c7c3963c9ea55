"""The dtypes of torch and the types of Triton that stand for each dtype.

Torch and Triton name their dtypes as NumPy and `ml_dtypes` do; this file states the exceptions.
`vendored/arrays.py` has the same table for programs, which cannot import shardir.
"""

from shardir.ir.dtypes import (
    COMPLEX,
    COMPUTE_DTYPES,
    DTYPE_INFO,
    FLOATS,
    KEYS,
    NARROW_FLOATS,
    RBG_KEYS,
    UNSIGNED,
)

TORCH_DTYPES = {
    dtype: "torch.uint8" if info.is_small else f"torch.{info.numpy.name}"
    for dtype, info in DTYPE_INFO.items()
    if dtype not in RBG_KEYS
}
"""The torch dtype that stores each dtype; small dtypes are stored as bytes."""
SIGNED_WORD_DTYPES = {
    dtype: f"torch.int{DTYPE_INFO[dtype].bits}"
    for dtype in (*UNSIGNED, "key")
    if DTYPE_INFO[dtype].bits > 8
}
"""Signed dtype of the same width in which torch computes where it lacks unsigned kernels."""
TRITON_TYPES = {
    dtype: "tl.uint8" if info.is_small else f"tl.{info.numpy.name}"
    for dtype, info in DTYPE_INFO.items()
    if dtype not in (*COMPLEX, *KEYS)
} | {"bool": "tl.int1"}
"""Triton's types; complex dtypes and keys have none."""
COMPUTE_TYPES = {
    dtype: TRITON_TYPES[dtype if DTYPE_INFO[dtype].is_small else COMPUTE_DTYPES[dtype]]
    for dtype in TRITON_TYPES
}
"""The type in which a kernel computes each dtype."""
POINTER_TYPES = {
    dtype: "*u8" if DTYPE_INFO[dtype].is_small else f"*{dtype}" for dtype in TRITON_TYPES
} | {
    "bool": "*i1",
    "f16": "*fp16",
    "f32": "*fp32",
    "f64": "*fp64",
}
"""Pointer types in the notation of `triton.compile`."""
INFERRED_TYPES = (*NARROW_FLOATS, "f32", "i32", "bool")
"""Types that Triton infers for a plain number, unless it is too small for a normal f32."""
PRODUCT_DTYPES = tuple(dtype for dtype in FLOATS if not DTYPE_INFO[dtype].is_small)
"""Dtypes of operands of products of tiles (`tl.dot`)."""

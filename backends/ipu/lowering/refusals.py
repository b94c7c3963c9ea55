"""Operations that IPU programs cannot contain, each with the reason and an alternative."""

from shardir.backends.ipu.lowering.lowering_table import refuses

_HOST = "compute it on the host, and pass the result as an argument"

refuses(
    "real", "imag", "conj", "complex",
    reason="uses complex numbers, which IPUs do not have",
    fix="keep the real and the imaginary part as two real tensors",
)  # fmt: skip
refuses(
    "fft",
    reason="computes complex numbers, which IPUs do not have",
    fix="multiply by the matrices of cosines and sines, or compute it on the host",
)
refuses(
    "qr", "lu", "svd", "eigh", "eig", "schur", "pinv", "least_squares", "cholesky",
    "triangular_solve",
    reason="is a matrix decomposition, for which poplibs has no documented call",
    fix=_HOST,
)  # fmt: skip
refuses(
    "lgamma", "digamma",
    reason="has no expression in poplibs, nor an accurate one in single precision",
    fix=_HOST,
)  # fmt: skip
refuses(
    "callback", "pure-callback", "inspect-sharding", "pipeline-call",
    reason="calls Python, which an emitted program cannot do",
    fix="return the value, and inspect it on the host",
)  # fmt: skip
refuses(
    "opaque",
    reason="is an opaque operation, of which only the text is known",
    fix="write it with shardir's operations",
)
refuses(
    "custom-partitioning",
    "manual_computation",
    reason="is a program of one device that has not been partitioned",
    fix="run the pass 'partition' before",
)
refuses(
    "pipeline",
    "staged-pipeline",
    reason="runs in stages, which an emitted program does not have",
    fix="run the pass 'inline-pipelines' before",
)
refuses(
    "fused_products",
    reason="is one kernel on CPUs only",
    fix="run the pass 'inline' before",
)
refuses(
    "call",
    reason="calls a function, which an emitted program does not have",
    fix="run the pass 'inline-calls' before",
)
refuses(
    "checkpoint", "custom-jvp", "custom-vjp",
    reason="defines derivatives, which an emitted program does not use",
    fix="run the pass 'inline' before",
)  # fmt: skip

"""Operations that no IPU program is made of, each with the reason and what to write instead."""

from shardir.backends.ipu.table import refuses

_HOST = "compute it on the host, and pass the result as an argument"

refuses(
    "real", "imag", "conj", "complex",
    reason="is about complex numbers, which IPUs do not have",
    fix="keep the real and the imaginary part as two real tensors",
)  # fmt: skip
refuses(
    "fft",
    reason="makes complex numbers, which IPUs do not have",
    fix="multiply by the matrices of cosines and sines, or compute it on the host",
)
refuses(
    "qr", "lu", "svd", "eigh", "eig", "pinv", "least_squares", "cholesky", "triangular_solve",
    reason="is a decomposition of matrices, for which poplibs has no documented call",
    fix=_HOST,
)  # fmt: skip
refuses(
    "lgamma", "digamma",
    reason="has no expression in poplibs, nor an accurate one in single precision",
    fix=_HOST,
)  # fmt: skip
refuses(
    "callback", "pure-callback", "inspect-sharding",
    reason="calls Python, which an emitted program runs without",
    fix="return the value, and look at it on the host",
)  # fmt: skip
refuses(
    "opaque",
    reason="is carried through as text, and nothing is known about it",
    fix="write it with operations of this package",
)
refuses(
    "manual_computation",
    reason="is a program of one device that has not been partitioned",
    fix="run the pass 'partition' before",
)
refuses(
    "checkpoint", "custom-jvp", "custom-vjp",
    reason="says how a program is differentiated, which is over when it is emitted",
    fix="run the pass 'inline' before",
)  # fmt: skip

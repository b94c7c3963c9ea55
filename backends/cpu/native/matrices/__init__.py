"""Kernels of matrices that a worker holds as a whole: factors, equations, spectra.

A task takes some matrices of a batch, one after the other: each is brought to scratch memory,
worked on there in f64, and written once. Eigenvalues, singular values and least squares are
LAPACK's work, which machine code calls (`calling.py`), as it does for Q R of complex and of large
matrices; of f32 ones up to some size it does the inner part alone. Other matrices that are too
large are left to NumPy.
"""

from shardir.backends.cpu.native.matrices.rules import RULES as RULES

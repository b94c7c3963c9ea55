"""Kernels of matrices that a worker holds as a whole: factors, and triangular equations.

A task takes some matrices of a batch, one after the other: each is brought to scratch memory,
worked on there in f64, and written once. Eigenvalues and singular values are LAPACK's work, which
machine code calls (`calling.py`), as it does for Q R of large matrices; other matrices that are too
large are left to NumPy.
"""

from shardir.backends.cpu.native.matrices.rules import RULES as RULES

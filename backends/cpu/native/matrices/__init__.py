"""Kernels of matrices that a worker holds as a whole: factors, and triangular equations.

A task takes some matrices of a batch, one after the other: each is brought to scratch memory,
worked on there in f64, and written once. Matrices that are too large for that are LAPACK's.
"""

from shardir.backends.cpu.native.matrices.rules import RULES as RULES

"""Kernels of linear algebra on matrices that fit into the memory of one worker.

Input: an operation on batches of matrices, and its views. Output: phases. A task processes some
matrices of a batch one by one: each is loaded to scratch memory, processed there in f64, and stored
once. Eigenvalues, singular values and least squares are computed by LAPACK (`lapack_calls.py`), as
are QR decompositions of complex and of large matrices; for f32 matrices up to some size LAPACK
computes only the inner part. Other matrices that are too large are left to NumPy. Start reading in
`rules.py`.
"""

from shardir.backends.cpu.kernels.linalg.rules import RULES as RULES

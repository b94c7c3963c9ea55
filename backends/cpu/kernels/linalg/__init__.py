"""Kernels of linear algebra on matrices that fit into the memory of one worker.

Input: an operation on batches of matrices, and its views. Output: phases. A task processes some
matrices of a batch one by one: each is loaded to scratch memory, processed there in f64, and stored
once. LAPACK computes eigenvalues, singular values and least squares (`lapack_calls.py`), and QR
decompositions of complex and of large matrices. NumPy computes other decompositions of matrices
that are too large. Start reading in `cholesky.py`.
"""

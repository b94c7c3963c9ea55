"""QR, LU, Cholesky, triangular solve, SVD, eigenvalues, pseudo-inverse, least squares, FFT;
`matrices` for derivative formulas. Input: tensor types and attributes. Output: operation
specifications in `OPS`. Start with `factorizations`.
"""

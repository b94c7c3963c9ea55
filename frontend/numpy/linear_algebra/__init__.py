"""Products, einsum, factorizations, solvers, and the namespace `shardir.numpy.linalg`.

Input: vectors, matrices, batches of them. Output: `dot` and the operations of decompositions. Start
with `contraction`; `matrix_helpers` has the helpers that `lax.linalg` and `scipy.linalg` share.
"""

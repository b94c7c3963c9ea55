"""Kernels of the native CPU backend.

Input: an operation and views of its operands and results. Output: phases, or None if NumPy has to
run the operation. `rules` is the table of all operations, and `threefry` contains the kernels of
random bits. Start with `rules`.
"""

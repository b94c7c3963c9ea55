"""Vector code of elementwise operations: inline instructions, and a library of math functions.

Input: an operation name and vectors as LLVM values. Output: LLVM instructions, or calls of library
functions. Start reading in `inline.py` (`emit`); `library.py` compiles the functions, whose files
are named by function; `vector_arithmetic.py` has the steps that they share.
"""

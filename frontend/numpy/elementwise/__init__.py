"""Elementwise functions: arithmetic, comparisons, selection, mathematical functions, rounding,
bits, parts of floats and complex numbers. Input: operands that broadcast. Output: one elementwise
operation, or a few. Start with `arithmetic`.
"""

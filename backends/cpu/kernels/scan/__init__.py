"""Cumulative sums, products and extremes along a dimension, bit-identical to the reference.

Input: strided views. Output: phases. Start with `cumulative`.
"""

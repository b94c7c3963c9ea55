"""Reductions over axes: sums and extremes, reductions without NaN, cumulative reductions,
statistics, quantiles, histograms, and reductions of segments. Input: an operand, axes, an optional
mask. Output: reduction operations and the arithmetic around them. Start with `basic_reductions`.
"""

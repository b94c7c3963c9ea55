"""Convolutions, window reductions and the shapes of their results.

Input: operand, filter or window, strides, padding, dilations. Output: convolution and reduce_window
operations. Start with `convolution`.
"""

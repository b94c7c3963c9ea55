"""Kernels that move data: copies between layouts, concatenation, gather and scatter.

Input: an operation with strided views. Output: phases. Start with `copy`: `copy.copy_phases` copies
one view to another of the same shape with any strides. Most operations are lowered to a transform
of views (`view_transforms`) and such a copy.
"""

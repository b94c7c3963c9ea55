"""Kernels that move data: copies between layouts, gather and scatter, scans, windows, sorting.

Input: an operation with strided views. Output: phases. Start with `copy`: `copy.copy_phases` copies
one view to another of the same shape with any strides; most operations here are that and a view
(`view_transforms`).
"""

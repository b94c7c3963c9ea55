"""Kernels of fused products, as text.

Input: an operation `fused_products`. Output: its kernels and launch. Start with `products_kernel`;
`score_passes` divides the work into passes over the columns, `score_writer` writes the lines.
"""

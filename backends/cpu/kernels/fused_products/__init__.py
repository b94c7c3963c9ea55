"""Kernels of fused products, such as attention and its gradient, for a block of rows at a time.

Input: an operation `fused_products` and the views of its operands and results. Output: phases.
Start with `fused_products_rule`; `score_passes` divides the computation of scores into passes,
`visible_columns` finds the columns that masks exclude, `matrix_copies` copies matrices before the
kernel, `row_block_kernel` emits the kernel, and `tile_product` and `amx_product` the products.
"""

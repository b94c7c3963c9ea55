"""Convolutions on the CPU as products of patches of the image with the filter, and contractions
without a common GEMM form (depthwise). Input: the operation `convolution` with strided views.
Output: phases. Strategies: im2col packing (`im2col`), implicit GEMM that reads patches in place
(`implicit_gemm_lhs`), products without the zeros around small images (`row_selection`), NCHW layout
(`nchw*.py`), padded NHWC layout (`padded_nhwc*.py`), depthwise (`depthwise*.py`). Start with
`convolution`; `gemm/product_dispatch` selects the strategy.
"""

"""Contractions: matrix products (`dot`) and convolutions on the CPU.

Input: an operation with strided views of its operands and results. Output: phases, each a kernel
with its parameter record. Start with `product_dispatch`, then `packed_kernel`.
"""

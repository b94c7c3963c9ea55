"""Products on the tile registers of AMX: the micro-kernel, and the packing of its operands.

Input: packed panels, or operands with contiguous K steps or columns. Output: functions of the
packed GEMM kernel (`packed_kernel`).
"""

"""Fusion: group elementwise operations and reductions of one loop nest into `fused` operations.

Input and output: any program. Start with `fuse` (the pass); `groups` decides what is fused, `build`
builds the operations, `duplicate_operations` duplicates cheap ones.
"""

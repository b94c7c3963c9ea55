"""Collectives along named axes, and `axis_index_groups`.

Input: containers of arrays and axis names of `vmap` or `shard_map`. Output: all-reduce, all-gather,
reduce-scatter, all-to-all, collective-permute. Start with `collectives`.
"""

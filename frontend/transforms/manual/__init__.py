"""`shard_map`, `smap` and `pmap`: functions that every device runs on its shards. Input: a
function, and the specs of its arguments and results. Output: a function that appends a
`manual_computation` to the trace, with the function traced on shards as its body. Start with
`manual_region`.
"""

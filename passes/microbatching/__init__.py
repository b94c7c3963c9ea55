"""Microbatching: run a step on parts of its batch, one after the other, with less memory.

`split_batch` shards the batch along an axis of virtual devices before the default passes, start
there; `batch_dimensions` finds the batch. `accumulate_microbatches` turns this axis of the
partitioned program into loops; `microbatch_levels` decides which loop runs an operation, and
`microbatch_index` gives operations the number of the iteration instead of that of a device.
"""

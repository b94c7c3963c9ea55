"""Arrays and their storage:

`Array`, its shards, transfers to devices, and import and export of memory. Input: NumPy arrays,
numbers, DLPack capsules. Output: `Array` objects with a `Storage` or one buffer per device.
`signature` interns what a program needs to know of an array; `operators` has the methods that
arrays share with tracers. Start with `array`, then `shard_buffers` and `device_transfer`.
"""

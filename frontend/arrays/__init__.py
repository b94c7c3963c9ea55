"""Arrays and their storage: `Array`, its shards, transfers to devices, import and export of memory.

Input: NumPy arrays, numbers, DLPack capsules. Output: `Array` objects with a `Storage` or one
buffer per device. `abstract_value` defines the type of an array, `signature` interns the properties
of it on which programs depend; `operators` has the methods that arrays share with tracers;
`numpy_conversion` converts other objects. Start with `array`, then `shard_buffers` and
`device_transfer`.
"""

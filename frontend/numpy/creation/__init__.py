"""Arrays from scalars, shapes, lists and files; grids, window functions, identity and triangular
matrices. Input: shapes, scalars, files, a device or sharding. Output: new arrays, or constants and
iotas of the current trace. Start with `array_conversion` (`asarray`) and `filling`; `placement`
states the meaning of `device` and `out_sharding`.
"""

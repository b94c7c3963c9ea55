"""Transformations of Python functions: derivatives, custom rules, vmap, rematerialization; `manual`
contains shard_map and pmap. Input: a function and arguments. Output: a function; inside of a trace
its operations are inlined, outside it is a temporary program. Each transformation traces the
function (`tracing.function_tracing.trace_function`), calls a pass of `shardir.passes`, and appends
the result. Start with `grad` (smallest), then `linearization_point`.
"""

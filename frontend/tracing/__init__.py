"""Tracing: run a Python function on tracers and record its operations.

Input: a Python function and abstract values. Output: a `TracedFunction`, that is an `ir.Function`
with captured arrays and requested shardings. `function_tracing` runs the function, `trace` appends
operations to the block under construction, `traced_program` names values, `operands` and
`promotion` convert operands, `named_axes` and `varying_axes` track the axes of vmap, pmap and
shard_map. Start with `trace`, then `tracer`.
"""

"""Calls of functions: from Python arguments to compiled programs and their results.

Input: a function and arguments. Output: arrays; or `Lowered` and `Compiled` stages. `jit` and
`eager_call` look up a program by its cache key (`argument_signatures`), `lowering` puts a traced
function on one mesh, `runnable` compiles and runs it, `native_call_cache` and `view_launch` skip
Python code for repeated calls. Start with `jit`, then `lowering` and `runnable`.
"""

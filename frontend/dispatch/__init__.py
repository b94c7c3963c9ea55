"""Calls of functions: from Python arguments to compiled programs and their results.

Input: a function and arguments. Output: arrays; or `Lowered` and `Compiled` (`stages`).
`jit_function` and `eager_call` look up a program by the signature of the call (`call_table`) or
trace it (`traced_calls`), `programs` compiles and runs a traced function, `native_call_cache`
repeats calls without Python code. Start with `jit_function`, then `programs`.
"""

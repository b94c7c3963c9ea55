"""Explanations of programs that JAX compiled with XLA, and annotations that XLA follows.

Input: a program that `jax.jit(f).lower(...)` lowered or compiled. Output: XLA's collectives beside
those of shardir's plan, with changes of source lines that make XLA send fewer bytes, each verified
by compilation. Start reading in `programs.py` (`explain_xla`).
"""

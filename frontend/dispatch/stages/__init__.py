"""Stages of a function before it runs: `Lowered` and `Compiled`, and what they return.

Input: a traced function with its shardings. Output: text, explanations, costs, files for a target,
or a compiled program to call. Start with `stages`; `cost_analysis` computes costs and memory,
`step_simulation` predicts times on machines, `emission` writes programs for GPUs and IPUs, and
`argument_check` checks calls of compiled programs.
"""

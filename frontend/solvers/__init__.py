"""Iterative solvers of differential equations and minimization, which are loops of a program.

The functions take and return arrays or tracers. Start with `odeint.py` or `minimize.py`.
"""

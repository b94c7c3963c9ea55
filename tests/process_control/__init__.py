"""Helpers that control a process under test: signal handlers, threads, and killed processes.

The inputs are functions to run, the outputs their results or the state that an interruption
leaves behind. Start reading with `signals`.
"""

"""Execution of our programs on XLA's CPU devices, in a separate process."""

"""`profile`: the time of each operation of a function relative to the limits of the machine.

Input: a function and arguments. Output: a `Profile` (`profile_data`), which prints as a table
and is saved as a Chrome trace. Start with `profile`. `machine_calibration` measures the machine for
simulations, with the benchmarks of `operation_benchmarks`.
"""

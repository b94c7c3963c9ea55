"""Random programs with random shardings, for the comparison with Shardy.

The input is a seed, the output a module of our IR. `program_builder` holds a program under
construction; `operations`, `annotations`, `custom_calls`, `regions` and `calls` each add one kind
of statement to it. Start reading with `programs`.
"""

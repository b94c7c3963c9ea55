"""Planning of programs: find shardings of the arguments of a traced program.

Input: a module without shardings on a mesh, a machine or none, and a memory limit. Output: a
sharding for each argument, with the time, memory and collectives that the passes and the simulation
determine for them. Dimensions that an operation shards alike are one decision
(`dimension_groups.py`), layers share decisions (`repeated_layers.py`), and the search
(`assignment_search.py`) evaluates each assignment by partitioning the program (`evaluation.py`).
Start reading in `plan_program.py`.
"""

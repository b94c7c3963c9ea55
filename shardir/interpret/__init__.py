"""The reference interpreter in NumPy, the definition of semantics.

Input: a module and global arrays. Output: global arrays. Per-device programs run on a simulated
mesh; `shards` splits and assembles arrays. `numeric_comparison` and `random_arguments` compare two
programs; `machine_limits` refuses programs that cannot run. Start with `interpreter`.
"""

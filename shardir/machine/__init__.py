"""Machine descriptions: how long computations and collectives take on a described machine.

Input: a description file (`descriptions/*.toml`, or a path) and the sizes of mesh axes. Output: a
`Machine`, whose methods return seconds. `description` reads files, `placement` assigns mesh axes to
links, `collective_time` has the model of collectives, `alpha_beta` and `collective_table` fit and
read measurements. Start with `machine`.
"""

from shardir.machine.machine import Machine, load_machine

__all__ = ["Machine", "load_machine"]

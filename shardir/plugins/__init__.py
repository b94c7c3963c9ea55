"""Registries: tables of named objects to which installed packages and loaded files add entries.

Input: entry points of installed packages, and the files and modules that the user loads.
Output: passes, targets, backends, operations and sharding rules by name, with their origins.
Start at `registry.py`; `entry_points.py` reads the metadata of installed packages.
"""

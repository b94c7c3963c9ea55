"""Contractions: matrix products of every kind, and the operations that become one."""

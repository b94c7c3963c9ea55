"""Contractions: matrix products of every kind, and the operations that become one."""

from shardir.backends.cpu.native.contraction.rules import LAYOUTS as LAYOUTS, RULES as RULES

"""Kernels of loops over elements: what is elementwise, and what is fused."""

from shardir.backends.cpu.native.loops.rules import RULES as RULES, accepts as accepts

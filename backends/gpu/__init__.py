"""GPU programs: one Triton kernel for each group, torch for the rest."""

from shardir.backends.gpu.target import TARGET as TARGET

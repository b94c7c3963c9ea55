"""GPU programs: one Triton kernel for each group, torch for the rest."""

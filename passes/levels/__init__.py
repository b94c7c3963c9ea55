"""Collectives on two levels: what `hierarchical-collectives` is made of."""

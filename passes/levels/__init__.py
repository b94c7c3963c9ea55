"""Collectives on two levels: what `two-levels` is made of."""

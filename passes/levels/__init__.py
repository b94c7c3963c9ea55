"""Hierarchical collectives: rules that split collectives into levels."""

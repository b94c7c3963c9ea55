"""The namespace `shardir.lax`: functions that correspond closely to operations of the IR."""

"""Rules that merge the per-device program to one program over the arrays of all devices."""

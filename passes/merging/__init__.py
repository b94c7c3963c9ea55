"""From the program that each device runs to one program over the arrays of all of them."""

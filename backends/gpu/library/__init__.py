"""Functions of torch that emitted programs define for themselves, as far as they use them.

Each file is read as text: a program gets the functions that it calls, and what those call. So
nothing here is imported by shardir, and nothing here may import shardir; names are unique among
all files. Functions take and give tensors of the element types that the program states.
"""

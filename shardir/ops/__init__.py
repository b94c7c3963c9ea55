"""The operations, one module per family. Importing this package declares them all."""

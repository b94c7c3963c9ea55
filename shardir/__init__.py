"""shardir: a graph IR whose tensors know how they are spread over a mesh of devices."""

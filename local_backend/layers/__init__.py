"""One operation a file, on NumPy arrays: the obvious way, the oracle of the native kernels."""

"""What exists: providers.yaml, parsed once into a frozen catalog. Knows nothing of health."""

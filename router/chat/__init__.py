"""Normalise: the canonical chat vocabulary and the readers and writers of its wires. Pure, no IO."""

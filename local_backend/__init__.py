"""Roundhouse engine: plans, loads and runs GGUF models, mixtures of experts first of all.

Knows nothing of the gateway; the two packages meet over HTTP only.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"

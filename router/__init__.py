"""Roundhouse gateway: one OpenAI-compatible port in front of many models.

Knows nothing of how the local engine computes; the two packages meet over HTTP only.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"

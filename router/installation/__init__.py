"""Makes a checkout runnable: virtual environment, packages, native module.

Standard library only and imported before anything is installed, so it knows nothing else of ours.
"""

__all__: list[str] = []

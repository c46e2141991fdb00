"""How fast a model runs here. Knows the engine; not HTTP."""

__all__: list[str] = []

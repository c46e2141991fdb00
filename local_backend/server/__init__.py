"""The engine over HTTP, in the OpenAI wire. Knows events and bodies; not layers, caches or files."""

__all__: list[str] = []

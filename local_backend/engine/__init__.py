"""Sequences in, tokens out: schedule, forward, sample. Knows no HTTP and no file formats."""

__all__: list[str] = []

"""Sequences in, tokens out: schedule, forward, sample."""

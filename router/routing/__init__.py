"""Decide: values in, an ordered list of candidates out. Pure; never logs."""

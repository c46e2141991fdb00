"""The choice between reference and native arithmetic; same interface, made once by the engine."""

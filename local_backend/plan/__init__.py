"""Where things go: what a model needs, what the machine has, and a placement or the reason why not."""

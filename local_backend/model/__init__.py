"""What a model file means: hyperparameters, weights by role, vocabulary.

Not where bytes live, not how layers compute.
"""

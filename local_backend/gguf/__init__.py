"""A file format. Knows no model, no arithmetic and no tiers."""

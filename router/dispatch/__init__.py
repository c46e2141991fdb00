"""Act on a decision: attempts, deadlines, fail-over. Knows no scores."""

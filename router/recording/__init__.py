"""What happened: records, metrics, logs. Never raises into a request."""

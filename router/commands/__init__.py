"""What each command of ``roundhouse`` does: one file a command, each with ``run``."""

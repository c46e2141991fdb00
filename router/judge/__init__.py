"""Who names the task of a request to ``auto``: a fast cloud model in a lane of its own, else a heuristic."""

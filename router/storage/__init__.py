"""SQL and Redis behind our own types; never hands out ORM rows."""

"""One subcommand a module: its arguments, its run, its printing. Knows no other subcommand."""

__all__: list[str] = []

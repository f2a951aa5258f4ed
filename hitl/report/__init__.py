"""One self-contained HTML page with the state of a project."""

"""Define the pages: one module per family, each with a few thin routes over a `Snapshot`."""

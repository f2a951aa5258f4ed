"""Define the pages: one module per group of pages, each with a few short routes that read a `Snapshot`."""

"""The pages: a module a family, each a few thin routes over what a `Snapshot` holds."""

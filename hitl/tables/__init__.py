"""Tables: in files and in memory, whole and in batches, long and wide; columns as codes."""

"""Read, write and align tables, in files and in memory, and encode their columns."""

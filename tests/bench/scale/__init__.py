"""Labels beyond memory: fewer passes, and shards."""

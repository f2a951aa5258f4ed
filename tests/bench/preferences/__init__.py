"""Rankings from preferences: how many comparisons they take."""

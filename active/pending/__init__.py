"""Outstanding questions: keep, expire or withdraw them, and explain why nothing is asked."""

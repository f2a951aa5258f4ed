"""`hitl serve`: pages, and what other programs ask, over HTTP."""

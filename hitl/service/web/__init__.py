"""`hitl serve`: pages, an API, webhooks and Label Studio's ML backend, over the functions that the commands call."""

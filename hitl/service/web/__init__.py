"""Serve pages, an API, webhooks and Label Studio's ML backend, on top of the functions that the commands call."""

"""Run projects continuously: schedule their runs, retry failures, and serve pages, webhooks and the API."""

"""Questions that were asked and wait: outstanding, expired, blocked."""

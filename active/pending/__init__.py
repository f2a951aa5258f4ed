"""Unanswered questions: outstanding, expired, blocked."""

"""Crowds, whole and thinned, and what is measured on them: scores, stops, the policy."""

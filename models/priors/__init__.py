"""Priors over the true labels."""

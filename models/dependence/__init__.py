"""Correct a posterior under independence for annotators and models that err together."""

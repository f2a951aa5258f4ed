"""Combiners: a truth prior times an annotator model; one algorithm a file."""

"""Fits of a truth prior and an annotator model: iterations, their start, and predictions without a refit."""

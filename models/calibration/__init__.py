"""Calibration of model probabilities."""

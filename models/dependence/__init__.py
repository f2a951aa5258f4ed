"""Corrections of posteriors that assume independence, for annotators and models that err together."""

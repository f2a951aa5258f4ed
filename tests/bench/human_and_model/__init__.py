"""Annotators and one classifier together: hitl beside CROWDLAB, and whom to ask again, beside ActiveLab."""

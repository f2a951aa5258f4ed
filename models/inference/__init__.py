"""The loop that fits a truth prior and an annotator model, its starts, and updates without a refit."""

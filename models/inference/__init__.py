"""The loop that fits a truth prior x an annotator model, its starts, and updates without a refit."""

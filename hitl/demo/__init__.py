"""The demonstration on real annotators."""

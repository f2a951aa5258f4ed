"""Annotators known in steps: what the crowd does, how good a person is, and what that person takes for what."""

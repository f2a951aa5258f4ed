"""Policies on recorded or simulated annotators: what they would have saved."""

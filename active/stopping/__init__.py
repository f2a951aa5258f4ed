"""Stopping: when an item and a project are done, and what is still to come."""

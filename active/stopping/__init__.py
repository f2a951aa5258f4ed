"""Stopping: when an item and a project are done, and how many labels are still to come."""

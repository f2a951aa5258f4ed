"""Hierarchical annotator model: the crowd's behavior, a person's accuracy, and that person's confusions."""

"""Hierarchical annotator model: the crowd's behavior, each annotator's accuracy, and each annotator's confusions."""

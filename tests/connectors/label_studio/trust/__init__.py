"""What becomes of a project on a real Label Studio when answers, people or processes fail."""

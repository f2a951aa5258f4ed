"""Models that learn while a project is labeled: `training` trains them on its labels and keeps what they predict."""

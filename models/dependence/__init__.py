"""What a posterior under independence is worth among annotators and models that err together."""

"""What an answer is worth: scores, expected gain, value of information, core sets."""

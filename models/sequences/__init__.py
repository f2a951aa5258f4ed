"""Methods for items that follow each other: tokens of a sentence, frames of a video."""

"""Masks and boxes that several annotators drew of the same images, combined.

`mask_consensus` finds the true class of each pixel; `label_patterns` are the pixels that all annotators labeled alike,
`pixel_field` the truth prior, `grid_passes` its loops over the pixels, `held_out_strength` how strong it is.
`boxes` matches and combines rectangles. `run_length` reads and writes the masks of Label Studio.
"""

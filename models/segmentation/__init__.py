"""Masks and boxes that several annotators drew of the same images, combined.

`mask_consensus` finds the true class of each pixel; `label_patterns` are the pixels that all annotators labeled alike,
`pixel_field` the truth prior, `grid_passes` its loops over the pixels, `held_out_strength` how strong it is.
`boxes` matches and combines rectangles, and `drawn_objects` matches areas that annotators drew over. `box_labels` and
`mask_labels` make evidence of what a project has stored; `judged_images` says what a combiner makes of the matched
objects, and `box_consensus` and `image_consensus` what follows for images. `run_length` reads and writes the masks of
Label Studio.
"""

"""Images of which annotators mark parts, as small pictures of what was marked: masks and boxes."""

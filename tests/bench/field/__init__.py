"""Label combiners of every open package that runs, on the same public sets: `make results`."""

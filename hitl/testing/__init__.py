"""Contract suites: what every combiner, policy and connector must pass, those of other packages too."""

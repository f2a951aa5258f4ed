"""What every combiner, policy, prior and connector must keep to, to run over one of your own."""

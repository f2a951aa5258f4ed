"""What `bench_honesty` is made of: crowds, whole and thinned; their scores; the constant chosen without a group."""

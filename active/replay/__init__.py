"""Run policies on recorded or simulated annotators to measure the labels they save."""

"""Methods with the settings of their papers, beside hitl's: python -m tests.bench.papers."""

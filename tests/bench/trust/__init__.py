"""Long proofs, each a `main` that prints a table and can save it: `python -m tests.bench.trust.NAME --save`."""

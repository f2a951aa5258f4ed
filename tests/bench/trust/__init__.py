"""Long proofs that nothing is lost and nothing gets stuck; `make test` runs a short form of each."""

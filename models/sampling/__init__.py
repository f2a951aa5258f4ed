"""Gibbs and Hamiltonian samplers, and averages over their draws."""

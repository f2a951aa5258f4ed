"""Gibbs, Metropolis and Hamiltonian samplers, and what their draws say."""

"""Reports on annotators and models from a fit: profiles, agreement, spammers, drift, communities."""

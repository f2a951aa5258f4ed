"""What a fit says of annotators and models: profiles, agreement, spammers, drift, communities."""

"""Assignment: eligibility, the best pairs, load balancing, gold and audit questions."""

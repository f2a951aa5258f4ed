"""Who is asked what: eligibility, assignment, load balancing, gold questions."""

"""What is promised about labels, and how often it is true: certificates, acceptance without people, intervals."""

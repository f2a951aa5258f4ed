"""Certificates: what audits promise about a file of labels, as a document that anyone can check."""

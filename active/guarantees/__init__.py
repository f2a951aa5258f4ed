"""Guarantees: what audited items prove about labels, whatever the belief that chose the items."""

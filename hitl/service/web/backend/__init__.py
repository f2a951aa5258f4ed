"""Serve Label Studio's model backend: what hitl suggests to annotators before they answer."""

"""What another package brings to hitl."""

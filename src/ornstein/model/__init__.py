"""What is inferred; the only room that knows N."""

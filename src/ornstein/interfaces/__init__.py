"""Where ornstein meets other tools."""

"""How rows lie in memory, how they are drawn, gathered and summed; nothing here knows a model."""

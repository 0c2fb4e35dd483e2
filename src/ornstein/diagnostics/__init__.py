"""Is the chain there yet, and is it right?"""

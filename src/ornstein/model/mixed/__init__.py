"""Mixed models: the effects of groups integrated out, so that an example is a group."""

"""Real agents: adapters, the scripted model that answers them, and the reference agent."""

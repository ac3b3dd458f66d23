"""Data plane: protocol, generator, client, worker and software GPU."""

"""Administrator's console."""

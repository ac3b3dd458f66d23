"""Generated: the messages' codec for Python."""

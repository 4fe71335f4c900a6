"""What is written down: the only room that writes run files."""

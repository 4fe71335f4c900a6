"""What fails: pure functions of seed and call. No clock, no I/O, no global state."""

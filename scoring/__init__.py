"""What it means: rates, intervals and comparisons, read off ledgers alone."""

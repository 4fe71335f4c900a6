"""The shipped profiles, dialects and capability files, and the one place that reads them from disk."""

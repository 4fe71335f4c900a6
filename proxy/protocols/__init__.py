"""The wire formats: bytes in; calls, results and spans out; edited bytes back. No I/O anywhere in here."""

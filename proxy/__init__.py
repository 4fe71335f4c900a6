"""The wire: everything that touches a request or a response."""

"""What the server counts and times, as JSON, for Prometheus, and in its log (spec/api.md §13 to §15)."""

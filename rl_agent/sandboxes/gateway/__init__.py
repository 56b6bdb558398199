"""The E2B-compatible server over any provider of ours."""

"""The agent CLIs: fetching, configuring and running them, and reading their output."""

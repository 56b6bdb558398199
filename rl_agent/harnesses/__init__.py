"""The real agent CLIs: fetch, configure, run, read what they leave."""

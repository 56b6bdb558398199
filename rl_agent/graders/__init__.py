"""From an agent's work to a verdict: workspace, patch capture, tests in a clean sandbox."""

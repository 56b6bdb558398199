"""Set up a repository in a sandbox, and capture or apply its diff. Used by agent runs and by grading."""

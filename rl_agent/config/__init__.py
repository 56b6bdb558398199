"""The schema of conf/: one module a group; typed loading, checks, and building of plug-ins."""

"""Option files, for `hydra.searchpath=[pkg://own_plugins.conf]`."""

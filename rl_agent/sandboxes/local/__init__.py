"""The local sandbox: overlayfs, bubblewrap and a namespace-joining exec helper."""

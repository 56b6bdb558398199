"""HTTP servers that play a vendor's API: sessions, dialects, server-sent events."""

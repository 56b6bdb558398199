"""HTTP servers that emulate a vendor's API: sessions, dialects, server-sent events."""

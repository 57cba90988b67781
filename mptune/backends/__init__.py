"""Device families: host, cuda, hip."""

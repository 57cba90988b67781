"""Definitions loaded, and their templates rendered into C++ sources."""

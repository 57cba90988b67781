"""Loads definitions and renders their templates into C++ sources."""

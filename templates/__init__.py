"""The Jinja2 template of each bundled kernel and, in ``prelude``, what makes one source serve every device."""

"""C++ as text: the prelude, tokens, literals, reserved names, included headers."""

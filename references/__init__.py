"""The double-precision reference of each bundled kernel, in the file of the same stem."""

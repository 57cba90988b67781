"""What is measured where there is a GPU, one module a section."""

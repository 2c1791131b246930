"""How documents are read and named."""

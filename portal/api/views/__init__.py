"""Views of the API: thin; they read through selectors and write through services."""

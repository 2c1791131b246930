"""Commands of the promises."""

"""Stories of dispatch: one form, played on a manager with two workers in four columns."""

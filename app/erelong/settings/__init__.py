"""The settings: what there is, what each may be, where it was given."""

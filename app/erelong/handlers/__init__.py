"""The kinds of jobs and the code that runs them."""

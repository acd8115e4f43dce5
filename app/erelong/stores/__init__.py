"""Where jobs live."""

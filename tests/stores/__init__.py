"""What every store must do, by topic, and what is particular to one."""

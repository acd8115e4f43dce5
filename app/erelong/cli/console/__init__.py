"""What every command that uses a service stands on: its options, its client, its output and its exit codes."""

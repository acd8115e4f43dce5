"""When jobs are due: local times, spreads, and the recurrences of schedules."""

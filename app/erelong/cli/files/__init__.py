"""The commands that read and write files of jobs and schedules."""

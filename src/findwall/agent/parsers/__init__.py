"""What options a job's program declares, seen while it reads its command line."""

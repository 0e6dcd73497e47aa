"""findwall inside a job: it finds steps, times and traces them, and leaves. Nothing here imports torch."""

"""Inside a live job: step times, telemetry, a short trace window, the run folder. Fails open."""

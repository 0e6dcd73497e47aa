"""What this machine can really do, measured."""

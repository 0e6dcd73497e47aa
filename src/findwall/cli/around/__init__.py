"""What commands share: what a person named, what is said meanwhile, what fails a command."""

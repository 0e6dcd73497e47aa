"""The job of all ranks: whose communications are one, on one clock, played again with anything changed."""
